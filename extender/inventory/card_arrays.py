"""Card arrays: all cards of a cluster, one row per node and one column per card.

Rows are never moved, so that a row number names a node for as long as it exists; the row of a node
that is gone has no card `present`. There are as many columns as the node with most cards has.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Slices = npt.NDArray[np.uint64]

ROWS_FIRST: Final = 64
COLUMNS_FIRST: Final = 8

INTEGERS: Final = (
    "memory",
    "cores",
    "slots",
    "used_memory",
    "used_cores",
    "used_slots",
    "numa",
    "index",
    "kind",
    "vendor",
    "mode",
    "table",
    "alone",
)
BOOLEANS: Final = ("present", "usable", "cordoned", "offered")


class CardArrays:
    """Every array has the shape `(rows, columns)`.

    `memory` and `used_memory` are MiB, `cores` and `used_cores` percent, `slots` and `used_slots`
    containers; used is acknowledged use. `usable` are healthy cards, and `offered` those that
    kube-scheduler allocates for resource claims, if there are `any_offered`. `alone` counts the
    pods that have a card for themselves. `kind` indexes `kinds` (models of cards), `vendor`
    `vendors`, `mode` `modes`, and `table` `tables` (profiles of cards that are cut into instances;
    0 is none). `slices` has a bit for each slice of such a card that is taken. Names of cards are
    in `uuids`, by row and column. `scores[row]` has how well two cards of a node are linked, by
    column, where that is known. `keepers[row]` hands the cards out; `waiting[row]` counts the
    placements on it that are not handed out yet. `layout` is another number after each change of
    the cards of a row.
    """

    def __init__(self, rows: int = ROWS_FIRST, columns: int = COLUMNS_FIRST) -> None:
        """Start with this many rows and columns; `grow` adds more."""
        shape = (rows, columns)
        self.memory: Integers = np.zeros(shape, np.int64)
        self.cores: Integers = np.zeros(shape, np.int64)
        self.slots: Integers = np.zeros(shape, np.int64)
        self.used_memory: Integers = np.zeros(shape, np.int64)
        self.used_cores: Integers = np.zeros(shape, np.int64)
        self.used_slots: Integers = np.zeros(shape, np.int64)
        self.numa: Integers = np.zeros(shape, np.int64)
        self.index: Integers = np.zeros(shape, np.int64)
        self.kind: Integers = np.zeros(shape, np.int64)
        self.vendor: Integers = np.zeros(shape, np.int64)
        self.mode: Integers = np.zeros(shape, np.int64)
        self.table: Integers = np.zeros(shape, np.int64)
        self.alone: Integers = np.zeros(shape, np.int64)
        self.slices: Slices = np.zeros(shape, np.uint64)
        self.present: Booleans = np.zeros(shape, np.bool_)
        self.usable: Booleans = np.zeros(shape, np.bool_)
        self.cordoned: Booleans = np.zeros(shape, np.bool_)
        self.offered: Booleans = np.zeros(shape, np.bool_)
        self.any_offered = False
        self.keepers: list[str] = [""] * rows
        self.waiting: Integers = np.zeros(rows, np.int64)
        self.uuids: list[list[str]] = [[""] * columns for _ in range(rows)]
        self.scores: dict[int, Integers] = {}
        self.kinds: list[str] = []
        self.vendors: list[str] = []
        self.modes: list[str] = []
        self.tables: list[tuple[object, ...]] = [()]
        self.layout = 0

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.memory.shape[0])

    @property
    def columns(self) -> int:
        """Return the number of columns."""
        return int(self.memory.shape[1])

    def grow(self, rows: int, columns: int) -> None:
        """Grow to at least this many rows and columns."""
        more = max(rows, self.rows), max(columns, self.columns)
        if more == (self.rows, self.columns):
            return
        self.layout += 1
        padding = ((0, more[0] - self.rows), (0, more[1] - self.columns))
        self.scores = {
            row: np.pad(scores, ((0, padding[1][1]), (0, padding[1][1])))
            for row, scores in self.scores.items()
        }
        self.uuids = [[*names, *[""] * padding[1][1]] for names in self.uuids]
        self.uuids += [[""] * more[1] for _ in range(padding[0][1])]
        self.keepers += [""] * padding[0][1]
        self.waiting = np.pad(self.waiting, padding[0])
        for name in (*INTEGERS, *BOOLEANS, "slices"):
            setattr(self, name, np.pad(getattr(self, name), padding))

    def copy(self) -> "CardArrays":
        """Return a copy of everything."""
        copy = CardArrays(self.rows, 0)
        for name in (*INTEGERS, *BOOLEANS, "slices", "waiting"):
            setattr(copy, name, getattr(self, name).copy())
        copy.keepers, copy.uuids = list(self.keepers), [list(names) for names in self.uuids]
        copy.scores = {row: scores.copy() for row, scores in self.scores.items()}
        for name in ("kinds", "vendors", "modes", "tables"):
            setattr(copy, name, list(getattr(self, name)))
        copy.layout, copy.any_offered = self.layout, self.any_offered
        return copy
