"""Folding the log while noting what each record changed, for tables that keep the difference.

Tables know positions, not places inside a record: nothing can be asked "as of half a record". So a
change is the state of every touched key and account before the record and after it.
"""

from typing import Final

import msgspec

from ledger.core import events
from ledger.core.state import Account, Entry, State
from ledger.log import records
from ledger.log.records import Record

Place = tuple[str, str]
"""A key in its qualified namespace: `(namespace, key)`."""


KEYED: Final = (
    events.Reserved,
    events.Committed,
    events.Released,
    events.Observed,
    events.Raised,
)
"""The events that concern one key, the most frequent first."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """What one record changed. `state` is the state after it, until the next one is folded.

    `keys` and `accounts` hold the values from before; `causes` says why the parts of charges that
    a release names have ended, as `(namespace, key, uid, base)`; `lines` is the number of lines
    that were known before.
    """

    record: Record
    hash: bytes
    state: State
    keys: dict[Place, Entry | None]
    accounts: dict[str, Account | None]
    causes: dict[tuple[str, str, str, int], str]
    lines: int


def step(state: State, position: int, payload: bytes) -> Change:
    """Fold the record stored at a position and return what it changed.

    Verifies what `ledger.log.records.fold` verifies. Raises Lost and NewerSchema.
    """
    record, digest = records.check(state, position, payload)
    change = _before(state, record, digest)
    records.apply(state, record, position)
    state.seal(position, digest, record.time)
    return change


def _before(state: State, record: Record, digest: bytes) -> Change:
    """Note everything that the record's events are going to touch."""
    change = Change(record, digest, state, {}, {}, {}, len(state.names))
    keys, namespaces = change.keys, state.namespaces
    for item in record.items:
        event = item.event
        if isinstance(event, KEYED):
            place = (event.namespace, event.key)
            if place not in keys:
                space = namespaces.get(event.namespace)
                keys[place] = space.entries.get(event.key) if space is not None else None
            if isinstance(event, events.Released):
                change.causes[(*place, event.uid, event.base)] = event.cause
        elif not isinstance(event, events.ClusterRegistered):
            change.accounts.setdefault(event.account, state.accounts.get(event.account))
    return change
