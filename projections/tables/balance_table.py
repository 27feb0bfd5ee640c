"""The tables of balances: limits of an account's lines, and used amounts after each record."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model.accounts import AccountKind, kind
from ledger.core.model.state import Account, State
from projections.record_changes import RecordChange
from projections.store.row_inserts import RowInsert
from projections.tables.committed_totals import CommittedTotals
from projections.tables.name_numbers import NameNumbers

_encode: Final = msgspec.msgpack.Encoder().encode

BalanceRow = tuple[int, int, bytes]
"""Account, position and body."""


class BalanceTable:
    """The tables `limits` and `balances`."""

    def __init__(self, names: NameNumbers, state: State) -> None:
        self._names = names
        self._limits: list[BalanceRow] = []
        self._balances: list[BalanceRow] = []
        self._committed = CommittedTotals(state)
        self._columns: dict[str, _AccountColumns] = {}

    def collect(self, change: RecordChange) -> None:
        """Collect the balances of every account that the record touched, and changed limits."""
        state, position = change.state, change.record.position
        self._committed.add(change)
        touched = set(change.accounts)
        namespaces = state.namespaces
        for namespace in {namespace for namespace, _ in change.keys}:
            touched.update(namespaces[namespace].accounts)
        if state.card_lines:
            touched.update(_touched_cards(change))
        used, committed = state.used, self._committed.totals
        opened, columns, rows = state.accounts, self._columns, self._balances
        for name in touched:
            known = columns.get(name)
            account = opened.get(name)
            if known is None or known.account is not account:
                known = columns[name] = _AccountColumns(self._names.accounts[name], account)
            body: list[int] = []
            for line in known.lines:
                amount = used[line]
                body += (amount, amount - committed[line])
            rows.append((known.number, position, _encode(body)))
        for name in change.accounts:
            known = columns[name]
            limits = [value for line in known.lines for value in (line, state.limit[line])]
            self._limits.append((known.number, position, _encode(limits)))
            if known.account is None:
                del columns[name]

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows."""
        _LIMITS.write(connection, sorted(self._limits))
        _BALANCES.write(connection, sorted(self._balances))
        self._limits.clear()
        self._balances.clear()


class _AccountColumns:
    """The number of an account and its open lines in the order of their numbers.

    They change only with the account, and most records change no account.
    """

    __slots__ = ("account", "lines", "number")

    def __init__(self, number: int, account: Account | None) -> None:
        self.number, self.account = number, account
        self.lines = () if account is None else tuple(sorted(account.lines.values()))


def _touched_cards(change: RecordChange) -> set[str]:
    """Return the accounts of cards whose used amounts a record's events changed."""
    names = change.state.names
    touched = {names[line][0] for item in change.record.items for line in item.postings[::3]}
    return {name for name in touched if kind(name) is AccountKind.CARD}


_LIMITS: Final = RowInsert("limits", "account", "position", "body")
_BALANCES: Final = RowInsert("balances", "account", "position", "body")
