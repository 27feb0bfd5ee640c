"""The table of charges: the holds and objects that each key is charged for, as intervals."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model.events import OBJECT
from ledger.core.model.state import Entry, Hold, Object
from ledger.core.model.traits import recorded_up_to
from projections.record_changes import RecordChange
from projections.store.interval_index import fork
from projections.tables.name_numbers import NameNumbers
from projections.tables.table_protocol import check_closed

COMMITTED: Final = "committed"
"""The hold ended because its object was observed."""
RAISED: Final = "raised"
"""The hold continues in the next row, with a larger demand or with the demand of its cards."""
UPDATED: Final = "updated"
"""The object continues in the next row, at a newer version or with the demand of its cards."""

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")

ChargePart = Hold | Object
RowKey = tuple[int, str, int, str]
"""`(namespace, key, base, uid)`: what an open row is found by."""

NumberedKey = tuple[int, str, str]
"""Number and name of a namespace, and a key in it."""

_NOTHING_HELD: Final = Entry(None, (), {})


class ChargeTable:
    """The table `charges`.

    A row that opens and closes before it is written is written once. Rows are written in the order
    of opening, for any size of the transactions.
    """

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        self._rows: list[_Row] = []
        self._open: dict[RowKey, _Row] = {}
        self._closings: list[tuple[int, str, int, int, str, int, str]] = []

    def collect(self, change: RecordChange) -> None:
        """Close the parts that ended with the record, and open those that began."""
        position, namespaces = change.record.position, change.state.namespaces
        for (namespace, key), known in change.keys.items():
            before = known or _NOTHING_HELD
            after = namespaces[namespace].entries.get(key, _NOTHING_HELD)
            number = self._names.namespace(namespace, position)
            if before.holds != after.holds:
                self._collect_holds(change, (number, namespace, key), before.holds, after.holds)
            if before.committed != after.committed:
                self._collect_object(
                    change, (number, namespace, key), before.committed, after.committed
                )

    def _collect_holds(
        self,
        change: RecordChange,
        where: NumberedKey,
        before: tuple[Hold, ...],
        after: tuple[Hold, ...],
    ) -> None:
        number, namespace, key = where
        position = change.record.position
        for hold in before:
            if hold not in after:
                cause = change.causes.get((namespace, key, hold.uid, hold.base))
                if cause is None:
                    again = any(
                        other.uid == hold.uid and other.base == hold.base for other in after
                    )
                    cause = RAISED if again else COMMITTED
                self._end((number, key, hold.base, hold.uid), position, cause)
        for hold in after:
            if hold not in before:
                self._begin((number, key, hold.base, hold.uid), hold, position)

    def _collect_object(
        self, change: RecordChange, where: NumberedKey, before: Object | None, after: Object | None
    ) -> None:
        number, namespace, key = where
        position = change.record.position
        if before is not None:
            cause = change.causes.get((namespace, key, before.uid, OBJECT), UPDATED)
            self._end((number, key, OBJECT, before.uid), position, cause)
        if after is not None:
            self._begin((number, key, OBJECT, after.uid), after, position)

    def _begin(self, identity: RowKey, part: ChargePart, position: int) -> None:
        row = _Row(identity, part, opened=position)
        self._rows.append(row)
        self._open[identity] = row

    def _end(self, identity: RowKey, position: int, cause: str) -> None:
        row = self._open.pop(identity, None)
        if row is None:
            self._closings.append((position, cause, position, *identity))
        else:
            row.closed, row.cause = position, cause

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected closings and rows. Raises DamagedProjection when a row to close is
        not open.
        """
        closed = connection.executemany(_CLOSE, self._closings).rowcount
        check_closed("charges", closed, len(self._closings))
        connection.executemany(_INSERT, [row.values() for row in self._rows])
        self._closings.clear()
        self._rows.clear()
        self._open.clear()


class _Row:
    """A collected row."""

    __slots__ = ("cause", "closed", "identity", "opened", "part")

    def __init__(self, identity: RowKey, part: ChargePart, *, opened: int) -> None:
        self.identity, self.part, self.opened = identity, part, opened
        self.closed: int | None = None
        self.cause: str | None = None

    def values(self) -> tuple[int | str | bytes | None, ...]:
        """Return the columns in the order of the insert."""
        part, opened, closed = self.part, self.opened, self.closed
        version, owner, actor, admitted = 0, "", "", None
        if isinstance(part, Hold):
            owner, actor = part.owner, part.actor
        else:
            version = part.version
            if part.admitted is not None:
                admitted = _encoder.encode(part.admitted)
        place = None if closed is None else fork(opened, closed)
        root, traits = part.root, _encoder.encode(part.traits)
        demand = _encoder.encode(part.demand)
        own = (version, demand, admitted, part.time, owner, actor, root, traits)
        return (
            *self.identity,
            *own,
            recorded_up_to(part.traits),
            opened,
            closed,
            self.cause,
            place,
        )


_CLOSE: Final = """
UPDATE charges SET closed = ?, cause = ?, fork = fork(opened, ?)
WHERE namespace = ? AND key = ? AND base = ? AND uid = ? AND closed IS NULL
"""
_INSERT: Final = """
INSERT INTO charges
  (namespace, key, base, uid, version, demand, admitted, since, owner, actor, root, traits,
   read, opened, closed, cause, fork)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
