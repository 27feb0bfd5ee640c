"""Balances: limit, used and committed of every line of an account, after each record.

The core knows what is used. What part of it is committed is kept here, by adding up the difference
that each record makes to the committed demand of a key; a coverage that changes is counted anew.
"""

from typing import Final

import aiosqlite
import msgspec

from ledger.core import accounts
from ledger.core.amounts import Amounts
from ledger.core.state import Account, Entry, State
from projections.folding import Change
from projections.tables.names import Names

_encoder: Final = msgspec.msgpack.Encoder()
_NOTHING: Final[Amounts] = {}


class Balances:
    """The table `balances`. `committed` has the committed amount of each line by its number."""

    def __init__(self, names: Names, state: State) -> None:
        self._names = names
        self._rows: list[tuple[int, int, bytes]] = []
        self.committed = [0] * len(state.names)
        for account in state.accounts.values():
            self._recount(state, account)

    def take(self, change: Change) -> None:
        """Keep the balances of every account that the record touched."""
        state, position = change.state, change.record.position
        self.committed.extend([0] * (len(state.names) - len(self.committed)))
        self._commit(change)
        touched = set(change.accounts)
        for namespace in {namespace for namespace, _ in change.keys}:
            touched.update(state.namespaces[namespace].accounts)
        for name, before in change.accounts.items():
            after = state.accounts.get(name)
            if after is not None and after != before:
                self._recount(state, after)
        for name in sorted(touched):
            account = self._names.account(name, position)
            body = _encoder.encode(self._body(state, state.accounts.get(name)))
            self._rows.append((account, position, body))

    async def write(self, connection: aiosqlite.Connection) -> None:
        """Write the rows that wait."""
        await connection.executemany(
            "INSERT INTO balances (account, position, body) VALUES (?, ?, ?)", self._rows
        )
        self._rows.clear()

    def _commit(self, change: Change) -> None:
        """Add up how the committed demand of keys changed."""
        committed, namespaces = self.committed, change.state.namespaces
        for (namespace, key), before in change.keys.items():
            space = namespaces[namespace]
            old, new = _committed(before), _committed(space.entries.get(key))
            if old is new:
                continue
            for resource, line in space.plan:
                committed[line] += new.get(resource, 0) - old.get(resource, 0)

    def _recount(self, state: State, account: Account) -> None:
        totals = dict.fromkeys(account.lines, 0)
        for name in account.covers:
            for entry in state.namespaces[name].entries.values():
                for key in totals if entry.committed is not None else ():
                    totals[key] += _committed(entry).get(accounts.resource_of(key), 0)
        for key, total in totals.items():
            self.committed[account.lines[key]] = total

    def _body(self, state: State, account: Account | None) -> list[int]:
        body: list[int] = []
        for line in sorted(account.lines.values()) if account is not None else ():
            body += (line, state.limit[line], state.used[line], self.committed[line])
        return body


def _committed(entry: Entry | None) -> Amounts:
    return entry.committed.demand if entry is not None and entry.committed else _NOTHING
