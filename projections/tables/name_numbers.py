"""Numbers for namespaces and accounts, so that a million rows do not repeat their names.

Names are numbered in the order of their first occurrence in the log, so all projections of one log
have the same numbers.
"""

import aiosqlite

from ledger.core.model.qualified_names import split_qualified


class NameNumbers:
    """The numbers of the namespaces and accounts seen so far."""

    def __init__(self) -> None:
        self.namespaces: dict[str, int] = {}
        self.accounts: dict[str, int] = {}
        self._new_namespaces: list[tuple[int, str, str, int]] = []
        self._new_accounts: list[tuple[int, str, int]] = []

    @classmethod
    async def load(cls, connection: aiosqlite.Connection) -> "NameNumbers":
        """Read the numbers that a projection has assigned."""
        names = cls()
        async with connection.execute("SELECT cluster, name, number FROM namespaces") as rows:
            async for cluster, name, number in rows:
                names.namespaces[f"{cluster}/{name}"] = number
        async with connection.execute("SELECT name, number FROM accounts") as rows:
            async for name, number in rows:
                names.accounts[name] = number
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

    async def write(self, connection: aiosqlite.Connection) -> None:
        """Write the new numbers."""
        await connection.executemany(
            "INSERT INTO namespaces (number, cluster, name, opened) VALUES (?, ?, ?, ?)",
            self._new_namespaces,
        )
        await connection.executemany(
            "INSERT INTO accounts (number, name, opened) VALUES (?, ?, ?)", self._new_accounts
        )
        self._new_namespaces.clear()
        self._new_accounts.clear()
