"""The table of placements: the cards of every pod and the stage, as intervals."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model.cards import Placement
from projections.record_changes import RecordChange
from projections.store.interval_index import fork
from projections.tables.name_numbers import NameNumbers
from projections.tables.table_protocol import check_closed

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")

RowKey = tuple[str, int, str]
"""`(node, number of the namespace, key)`: what an open row is found by."""


class PlacementTable:
    """The table `placements`.

    A row that opens and closes before it is written is written once, in the order of opening.
    """

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        self._rows: list[_Row] = []
        self._open: dict[RowKey, _Row] = {}
        self._closings: list[tuple[int, int, str, int, str]] = []

    def collect(self, change: RecordChange) -> None:
        """Close the placements that a record ended or changed, and open what they are now."""
        position = change.record.position
        for (namespace, key), before in change.placed.items():
            after = change.state.namespaces[namespace].placed.get(key)
            if before == after:
                continue
            number = self._names.namespace(namespace, position)
            if before is not None:
                self._end((before.node, number, key), position)
            if after is not None:
                row = _Row((after.node, number, key), after, opened=position)
                self._open[row.identity] = row
                self._rows.append(row)

    def _end(self, identity: RowKey, position: int) -> None:
        row = self._open.pop(identity, None)
        if row is None:
            self._closings.append((position, position, *identity))
        else:
            row.closed = position

    def write(self, connection: sqlite3.Connection) -> None:
        """Write closings and rows that wait. Raises DamagedProjection when a row to close is not
        open."""
        closed = connection.executemany(_CLOSE, self._closings).rowcount
        check_closed("placements", closed, len(self._closings))
        connection.executemany(_INSERT, [row.values() for row in self._rows])
        self._closings.clear()
        self._rows.clear()
        self._open.clear()


class _Row:
    """A row that is not written yet."""

    __slots__ = ("closed", "identity", "opened", "placement")

    def __init__(self, identity: RowKey, placement: Placement, *, opened: int) -> None:
        self.identity, self.placement, self.opened = identity, placement, opened
        self.closed: int | None = None

    def values(self) -> tuple[int | str | bytes | None, ...]:
        """Return the columns in the order of the insert."""
        placed, opened, closed = self.placement, self.opened, self.closed
        bodies = (_encoder.encode(placed.parts), _encoder.encode(placed.stands))
        flags = (placed.stage, placed.initialised, placed.observed)
        filed = None if closed is None else fork(opened, closed)
        return (*self.identity, placed.uid, *bodies, placed.time, *flags, opened, closed, filed)


_CLOSE: Final = """
UPDATE placements SET closed = ?, fork = fork(opened, ?)
WHERE node = ? AND namespace = ? AND key = ? AND closed IS NULL
"""
_INSERT: Final = """
INSERT INTO placements
  (node, namespace, key, uid, parts, stands, since, stage, initialised, observed,
   opened, closed, fork)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
