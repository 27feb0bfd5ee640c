"""Numbers for namespaces and accounts, so that a million rows do not repeat their names.

Names are numbered in the order of their first occurrence in the log, so all projections of one log
have the same numbers.
"""

import sqlite3
from typing import Final

from ledger.core.model.qualified_names import split_qualified
from projections.store.row_inserts import RowInsert


class NameNumbers:
    """The numbers of the namespaces and accounts seen so far."""

    def __init__(self) -> None:
        self.namespaces: dict[str, int] = {}
        self.accounts: dict[str, int] = {}
        self._new_namespaces: list[tuple[int, str, str, int]] = []
        self._new_accounts: list[tuple[int, str, int]] = []

    @classmethod
    def load(cls, connection: sqlite3.Connection) -> "NameNumbers":
        """Read the numbers that a projection has assigned."""
        names = cls()
        for cluster, name, number in connection.execute(_NAMESPACES):
            names.namespaces[f"{cluster}/{name}"] = number
        names.accounts.update(connection.execute("SELECT name, number FROM accounts"))
        return names

    def namespace(self, qualified: str, position: int) -> int:
        """Return the number of a qualified namespace, assigned at this position if it is new."""
        number = self.namespaces.get(qualified)
        if number is None:
            number = self.namespaces[qualified] = len(self.namespaces) + 1
            cluster, name = split_qualified(qualified)
            self._new_namespaces.append((number, cluster, name, position))
        return number

    def account(self, name: str, position: int) -> int:
        """Return the number of an account, assigned at this position if it is new."""
        number = self.accounts.get(name)
        if number is None:
            number = self.accounts[name] = len(self.accounts) + 1
            self._new_accounts.append((number, name, position))
        return number

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the new numbers."""
        _NAMESPACE.write(connection, self._new_namespaces)
        _ACCOUNT.write(connection, self._new_accounts)
        self._new_namespaces.clear()
        self._new_accounts.clear()


_NAMESPACE: Final = RowInsert("namespaces", "number", "cluster", "name", "opened")
_ACCOUNT: Final = RowInsert("accounts", "number", "name", "opened")
_NAMESPACES: Final = "SELECT cluster, name, number FROM namespaces"
