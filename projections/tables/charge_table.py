"""The tables of charges: the holds and objects that each key is charged for, as intervals."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model.events import OBJECT
from ledger.core.model.state import Entry, Hold, Object, State
from ledger.core.model.traits import READ, recorded_up_to
from ledger.log.records import Record
from projections.record_changes import RecordChange
from projections.store.interval_index import fork
from projections.tables.interned_values import InternedValues
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
Cell = int | str | None
RowKey = tuple[int, str, int, str]
"""`(namespace, key, base, uid)`: what an open row is found by."""

ClosedRow = tuple[int, int, int, int, int]
"""Fork, namespace, position of closing, number and cause."""

NumberedKey = tuple[int, str, str]
"""Number and name of a namespace, and a key in it."""

_NOTHING_HELD: Final = Entry(None, (), {})


class ChargeTable:
    """The tables `charges`, `charges_open` and `charges_closed`.

    Rows are written in the order of opening, for any size of the transactions. A row that opens and
    closes before it is written is never in `charges_open`.
    """

    def __init__(self, names: NameNumbers, *, values: InternedValues, state: State) -> None:
        self._names = names
        self._values = values
        self._rows: list[_Row] = []
        self._open: dict[RowKey, _Row] = {}
        self._closings: list[tuple[RowKey, int, int]] = []
        self._read = self._marked = state.labels.get(READ, 0)

    def collect(self, change: RecordChange) -> None:
        """Close the parts that ended with the record, and open those that began."""
        position, namespaces = change.record.position, change.state.namespaces
        self._read = change.state.labels.get(READ, 0)
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
                self._begin((number, key, hold.base, hold.uid), hold, change.record)

    def _collect_object(
        self, change: RecordChange, where: NumberedKey, before: Object | None, after: Object | None
    ) -> None:
        number, namespace, key = where
        position = change.record.position
        if before is not None:
            cause = change.causes.get((namespace, key, before.uid, OBJECT), UPDATED)
            self._end((number, key, OBJECT, before.uid), position, cause)
        if after is not None:
            self._begin((number, key, OBJECT, after.uid), after, change.record)

    def _begin(self, identity: RowKey, part: ChargePart, record: Record) -> None:
        position, number = record.position, self._values.number
        owner = actor = version = 0
        admitted = None
        if isinstance(part, Hold):
            owner, actor = number(part.owner, position), number(part.actor, position)
        else:
            version = part.version
            if part.admitted is not None:
                admitted = number(_encoder.encode(part.admitted), position)
        row = _Row(
            identity,
            (
                version,
                number(_encoder.encode(part.demand), position),
                admitted,
                None if part.time == record.time else part.time,
                owner,
                actor,
                number(part.root, position) if part.root else 0,
                number(_encoder.encode(part.traits), position),
            ),
            read=recorded_up_to(part.traits) if part.traits else 0,
            opened=position,
        )
        self._rows.append(row)
        self._open[identity] = row

    def _end(self, identity: RowKey, position: int, cause: str) -> None:
        number = self._values.number(cause, position)
        row = self._open.pop(identity, None)
        if row is None:
            self._closings.append((identity, position, number))
        else:
            row.closed, row.cause = position, number

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected closings and rows. Raises DamagedProjection when a row to close is
        not open.
        """
        if self._read > self._marked:
            connection.execute(_MARK)
            self._marked = self._read
        closed = self._written_closings(connection)
        (last,) = connection.execute("SELECT coalesce(max(number), 0) FROM charges").fetchone()
        opened = []
        for number, row in enumerate(self._rows, last + 1):
            row.number = number
            if row.closed is None:
                unread = row.read if row.read < self._read else None
                opened.append((*row.identity, number, row.opened, unread))
            else:
                closed.append(_closed(row.opened, row.identity[0], row.closed, number, row.cause))
        connection.executemany(_INSERT, [row.columns() for row in self._rows])
        connection.executemany(_OPEN, sorted(opened))
        connection.executemany(_CLOSED, sorted(closed))
        self._closings.clear()
        self._rows.clear()
        self._open.clear()

    def _written_closings(self, connection: sqlite3.Connection) -> list[ClosedRow]:
        """Take the rows that earlier transactions opened from `charges_open`."""
        rows: list[ClosedRow] = []
        for identity, position, cause in sorted(self._closings):
            known = connection.execute(_TAKE, identity).fetchone()
            if known is not None:
                number, opened = known
                rows.append(_closed(opened, identity[0], position, number, cause))
        check_closed("charges_open", len(rows), len(self._closings))
        return rows


class _Row:
    """A collected row."""

    __slots__ = ("cause", "cells", "closed", "identity", "number", "opened", "read")

    def __init__(
        self, identity: RowKey, cells: tuple[Cell, ...], *, read: int, opened: int
    ) -> None:
        self.identity, self.cells, self.read, self.opened = identity, cells, read, opened
        self.closed: int | None = None
        self.number = self.cause = 0

    def columns(self) -> tuple[Cell, ...]:
        """Return the columns in the order of the insert."""
        return (self.number, *self.identity, *self.cells, self.read, self.opened)


def _closed(opened: int, namespace: int, closed: int, number: int, cause: int) -> ClosedRow:
    return fork(opened, closed), namespace, closed, number, cause


_MARK: Final = """
UPDATE charges_open SET unread = (
  SELECT read FROM charges WHERE charges.number = charges_open.number
)
WHERE unread IS NULL
"""
_TAKE: Final = """
DELETE FROM charges_open WHERE namespace = ? AND key = ? AND base = ? AND uid = ?
RETURNING number, opened
"""
_INSERT: Final = """
INSERT INTO charges
  (number, namespace, key, base, uid, version, demand, admitted, since, owner, actor, root,
   traits, read, opened)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_OPEN: Final = """
INSERT INTO charges_open (namespace, key, base, uid, number, opened, unread)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_CLOSED: Final = """
INSERT INTO charges_closed (fork, namespace, closed, number, cause) VALUES (?, ?, ?, ?, ?)
"""
