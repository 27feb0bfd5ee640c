"""The table of placements: the cards of every pod and the stage, as intervals."""

import sqlite3
from typing import Final

import msgspec

from ledger.core.model.cards import Placement
from projections.record_changes import RecordChange
from projections.store.row_inserts import Cell
from projections.tables.interval_rows import IntervalRows
from projections.tables.name_numbers import NameNumbers

_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")

_IDENTITY: Final = ("node", "namespace", "key")
_COLUMNS: Final = (
    *_IDENTITY,
    "uid",
    "parts",
    "stands",
    "since",
    "stage",
    "initialised",
    "observed",
)


class PlacementTable:
    """The table `placements`."""

    def __init__(self, names: NameNumbers) -> None:
        self._names = names
        self._rows = IntervalRows("placements", identity=_IDENTITY, columns=_COLUMNS, filed=True)

    def collect(self, change: RecordChange) -> None:
        """Close the placements that a record ended or changed, and open what they are now."""
        position = change.record.position
        for (namespace, key), before in change.placed.items():
            after = change.state.namespaces[namespace].placed.get(key)
            if before == after:
                continue
            number = self._names.namespace(namespace, position)
            if before is not None:
                self._rows.close((before.node, number, key), position)
            if after is not None:
                identity = after.node, number, key
                self._rows.open(identity, (*identity, *_cells(after)), position)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the collected rows. Raises DamagedProjection when a row to close is not open."""
        self._rows.write(connection)


def _cells(placed: Placement) -> tuple[Cell, ...]:
    """Return the columns behind the identity."""
    bodies = (_encoder.encode(placed.parts), _encoder.encode(placed.stands))
    return placed.uid, *bodies, placed.time, placed.stage, placed.initialised, placed.observed
