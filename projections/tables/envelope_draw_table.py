"""Envelope draw table: the charge of the pods of each root, added up, as intervals."""

import sqlite3
from typing import Final

import msgspec

from projections.record_changes import RecordChange, RootDraw, draw_at
from projections.store.interval_index import fork
from projections.tables.name_numbers import NameNumbers
from projections.tables.table_protocol import check_closed

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")

RootKey = tuple[int, str]
"""Number of a namespace and key of a root in it."""


class DrawTable:
    """The table `draws`.

    A row that opens and closes before it is written is written once, in the order of opening.
    """

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        self._rows: list[_Row] = []
        self._open: dict[RootKey, _Row] = {}
        self._closings: list[tuple[int, int, int, str]] = []

    def collect(self, change: RecordChange) -> None:
        """Close and open the rows of the roots whose pods, or whose own entry, changed."""
        position = change.record.position
        for (namespace, root), before in change.draws.items():
            after = draw_at(change.state.namespaces[namespace], root)
            if before == after:
                continue
            place = (self._names.namespace(namespace, position), root)
            if before is not None:
                self._end(place, position)
            if after is not None:
                row = self._open[place] = _Row(place, after, opened=position)
                self._rows.append(row)

    def _end(self, place: RootKey, position: int) -> None:
        row = self._open.pop(place, None)
        if row is None:
            self._closings.append((position, position, *place))
        else:
            row.closed = position

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected closings and rows. Raises DamagedProjection when a row to close is
        not open.
        """
        closed = connection.executemany(_CLOSE, self._closings).rowcount
        check_closed("draws", closed, len(self._closings))
        connection.executemany(_INSERT, [row.values() for row in self._rows])
        self._closings.clear()
        self._rows.clear()
        self._open.clear()


class _Row:
    """A collected row."""

    __slots__ = ("closed", "draw", "opened", "place")

    def __init__(self, place: RootKey, draw: RootDraw, *, opened: int) -> None:
        self.place, self.draw, self.opened = place, draw, opened
        self.closed: int | None = None

    def values(self) -> tuple[int | str | bytes | None, ...]:
        """Return the columns in the order of the insert."""
        draw, opened, closed = self.draw, self.opened, self.closed
        amounts = (_encoder.encode(draw.charge), _encoder.encode(draw.committed))
        filed = None if closed is None else fork(opened, closed)
        return (*self.place, *amounts, draw.pods, draw.live, opened, closed, filed)


_CLOSE: Final = """
UPDATE draws SET closed = ?, fork = fork(opened, ?)
WHERE namespace = ? AND root = ? AND closed IS NULL
"""
_INSERT: Final = """
INSERT INTO draws (namespace, root, charge, committed, pods, live, opened, closed, fork)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
