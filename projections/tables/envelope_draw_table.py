"""Envelope draw table: the charge of the pods of each root, added up, as intervals."""

import sqlite3
from typing import Final

import msgspec

from projections.record_changes import RecordChange, draw_at
from projections.tables.interval_rows import IntervalRows
from projections.tables.name_numbers import NameNumbers

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")

_IDENTITY: Final = ("namespace", "root")
_COLUMNS: Final = (*_IDENTITY, "charge", "committed", "pods", "live")


class DrawTable:
    """The table `draws`."""

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        self._rows = IntervalRows("draws", identity=_IDENTITY, columns=_COLUMNS, filed=True)

    def collect(self, change: RecordChange) -> None:
        """Close and open the rows of the roots whose pods, or whose own entry, changed."""
        position = change.record.position
        for (namespace, root), before in change.draws.items():
            after = draw_at(change.state.namespaces[namespace], root)
            if before == after:
                continue
            place = (self._names.namespace(namespace, position), root)
            if before is not None:
                self._rows.close(place, position)
            if after is not None:
                amounts = (_encoder.encode(after.charge), _encoder.encode(after.committed))
                self._rows.open(place, (*place, *amounts, after.pods, after.live), position)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows. Raises DamagedProjection when a row to close is not open."""
        self._rows.write(connection)
