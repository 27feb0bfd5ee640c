"""The table of drift: every correction of a difference between cluster and ledger.

A correction is one of two events. An `Observed` with the cause `unreserved` or `late` charges an
object that no hold admitted, and one with the cause `allocated` an allocation that takes more than
was reserved. A `Released` by the actor `recount` ends an object that a full list lacks although no
deletion was observed. A change of an object's labels or root is not a correction. The end of an
allocation is not one either.
"""

import sqlite3
from typing import Final, TypeGuard

import msgspec

from ledger.core.evolve.evolver import Postings
from ledger.core.model.amounts import Amounts
from ledger.core.model.events import OBJECT, AnyEvent, Cause, Observed, Released
from ledger.core.model.state import Hold, Object, State
from projections.record_changes import RecordChange
from projections.store.row_inserts import RowInsert
from projections.tables.name_numbers import NameNumbers

RECOUNT: Final = "recount"
"""The actor of what follows from comparing everything with a list, see
`webhook.settlement.charge_settlement_session`."""

_CORRECTING: Final = frozenset({Observed, Released})
_UNTOLD: Final = frozenset({Cause.UNRESERVED, Cause.LATE, Cause.ALLOCATED})
_NOTHING: Final[Amounts] = {}
_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")

DriftRow = tuple[int, int, int, str, str, str, str, bytes, bytes]


class DriftTable:
    """The table `drift`."""

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        self._rows: list[DriftRow] = []

    def collect(self, change: RecordChange) -> None:
        """Collect the corrections among the record's events."""
        position = change.record.position
        for number, item in enumerate(change.record.items):
            event = item.event
            if type(event) not in _CORRECTING or not _is_correction(event):
                continue
            amounts = event.demand if isinstance(event, Observed) else _released(change, event)
            self._rows.append(
                (
                    position,
                    number,
                    self._names.namespace(event.namespace, position),
                    event.key,
                    event.uid,
                    type(event).__name__,
                    str(event.cause),
                    _encoder.encode(amounts),
                    _encoder.encode(_over(change.state, item.postings)),
                )
            )

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows."""
        _INSERT.write(connection, self._rows)
        self._rows.clear()


def _is_correction(event: AnyEvent) -> TypeGuard[Observed | Released]:
    if isinstance(event, Observed):
        return event.cause in _UNTOLD and bool(event.demand)
    if not isinstance(event, Released):
        return False
    return event.actor == RECOUNT and event.cause != Cause.MOVED


def _released(change: RecordChange, event: Released) -> Amounts:
    """Return the charge of the part that ended; nothing if it began in the same record."""
    entry = change.keys[event.namespace, event.key]
    parts: list[Hold | Object] = []
    if entry is not None and event.base != OBJECT:
        parts += [hold for hold in entry.holds if hold.base == event.base]
    elif entry is not None and entry.committed is not None:
        parts.append(entry.committed)
    return next((part.demand for part in parts if part.uid == event.uid), _NOTHING)


def _over(state: State, postings: Postings) -> list[tuple[int, int, int]]:
    """Return `(line, used, limit)` of the lines that are over their limit after an event.

    The limit is the one after the record.
    """
    values = iter(postings)
    return [
        (line, used, state.limit[line])
        for line, delta, used in zip(values, values, values, strict=True)
        if delta > 0 and used > state.limit[line]
    ]


_INSERT: Final = RowInsert(
    "drift",
    *("position", "number", "namespace", "key", "uid", "type", "cause", "amounts", "over"),
)
