"""The tables of balances: limits of an account's lines, and used amounts after each record."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model.accounts import AccountKind, kind
from ledger.core.model.state import State
from projections.record_changes import RecordChange
from projections.tables.committed_totals import CommittedTotals
from projections.tables.name_numbers import NameNumbers

_encoder: Final = msgspec.msgpack.Encoder()

BalanceRow = tuple[int, int, bytes]
"""Account, position and body."""


class BalanceTable:
    """The tables `limits` and `balances`."""

    def __init__(self, names: NameNumbers, state: State) -> None:
        self._names = names
        self._limits: list[BalanceRow] = []
        self._balances: list[BalanceRow] = []
        self._committed = CommittedTotals(state)

    def collect(self, change: RecordChange) -> None:
        """Collect the balances of every account that the record touched, and changed limits."""
        state, position = change.state, change.record.position
        self._committed.add(change)
        touched = set(change.accounts)
        for namespace in {namespace for namespace, _ in change.keys}:
            touched.update(state.namespaces[namespace].accounts)
        if state.card_lines:
            touched.update(_touched_cards(change))
        used, committed = state.used, self._committed.totals
        for name in sorted(touched):
            number, account = self._names.account(name, position), state.accounts.get(name)
            lines = () if account is None else sorted(account.lines.values())
            body: list[int] = []
            for line in lines:
                body += (used[line], used[line] - committed[line])
            self._balances.append((number, position, _encoder.encode(body)))
            if name in change.accounts:
                limits = [value for line in lines for value in (line, state.limit[line])]
                self._limits.append((number, position, _encoder.encode(limits)))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows."""
        connection.executemany(_LIMITS, sorted(self._limits))
        connection.executemany(_BALANCES, sorted(self._balances))
        self._limits.clear()
        self._balances.clear()


def _touched_cards(change: RecordChange) -> set[str]:
    """Return the accounts of cards whose used amounts a record's events changed."""
    names = change.state.names
    touched = {names[line][0] for item in change.record.items for line in item.postings[::3]}
    return {name for name in touched if kind(name) is AccountKind.CARD}


_LIMITS: Final = "INSERT INTO limits (account, position, body) VALUES (?, ?, ?)"
_BALANCES: Final = "INSERT INTO balances (account, position, body) VALUES (?, ?, ?)"
