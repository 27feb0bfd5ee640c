"""The table of balances: limit, used and committed of an account's lines after each record."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model.accounts import AccountKind, kind
from ledger.core.model.state import Account, State
from projections.record_changes import RecordChange
from projections.tables.committed_totals import CommittedTotals
from projections.tables.name_numbers import NameNumbers

_encoder: Final = msgspec.msgpack.Encoder()


class BalanceTable:
    """The table `balances`."""

    def __init__(self, names: NameNumbers, state: State) -> None:
        self._names = names
        self._rows: list[tuple[int, int, bytes]] = []
        self._committed = CommittedTotals(state)

    def collect(self, change: RecordChange) -> None:
        """Keep the balances of every account that the record touched."""
        state, position = change.state, change.record.position
        self._committed.add(change)
        touched = set(change.accounts)
        for namespace in {namespace for namespace, _ in change.keys}:
            touched.update(state.namespaces[namespace].accounts)
        touched.update(_touched_cards(change))
        for name in sorted(touched):
            account = self._names.account(name, position)
            body = _encoder.encode(self._body(state, state.accounts.get(name)))
            self._rows.append((account, position, body))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows."""
        connection.executemany(
            "INSERT INTO balances (account, position, body) VALUES (?, ?, ?)", self._rows
        )
        self._rows.clear()

    def _body(self, state: State, account: Account | None) -> list[int]:
        body: list[int] = []
        for line in sorted(account.lines.values()) if account is not None else ():
            body += (line, state.limit[line], state.used[line], self._committed.totals[line])
        return body


def _touched_cards(change: RecordChange) -> set[str]:
    """Return the accounts of cards whose used amounts a record's events changed."""
    names = change.state.names
    touched = {names[line][0] for item in change.record.items for line in item.postings[::3]}
    return {name for name in touched if kind(name) is AccountKind.CARD}
