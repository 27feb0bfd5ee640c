"""Card window: the cards of the requested nodes, and their use while cards are chosen."""

from typing import Protocol, Self

import msgspec
import numpy as np

from extender.inventory.card_arrays import Booleans, CardArrays, Integers, Slices
from ledger.core.model.cards import MIG

Window = slice | Integers
"""Which rows of the arrays are looked at."""


class OverlayArrays(Protocol):
    """The use that the overlay adds, in the shape of the arrays; see `CardArrays` for the units."""

    memory: Integers
    cores: Integers
    slots: Integers
    alone: Integers


class CardWindow:
    """The cards of a window of rows and their capacities, which are read only.

    `shape` is rows and columns; `registered` marks the rows with any card. `offered` marks the
    cards that kube-scheduler allocates for resource claims, None if there are none.
    """

    def __init__(self, arrays: CardArrays, window: Window) -> None:
        """Look at these rows of the arrays."""
        self.arrays = arrays
        self.window = window
        self.present: Booleans = arrays.present[window]
        self.shape: tuple[int, ...] = self.present.shape
        self.registered: Booleans = rows_with_any(self.present)
        self.usable: Booleans = arrays.usable[window]
        self.cordoned: Booleans = arrays.cordoned[window]
        self.offered: Booleans | None = arrays.offered[window] if arrays.any_offered else None
        self.memory: Integers = arrays.memory[window]
        self.cores: Integers = arrays.cores[window]
        self.slots: Integers = arrays.slots[window]
        self.index: Integers = arrays.index[window]
        self.cut: Booleans = self._cut()
        self.any_cut = bool(self.cut.any())

    def row_numbers(self) -> Integers:
        """Return the rows of the arrays that are looked at."""
        return np.arange(self.arrays.rows)[self.window]

    def _cut(self) -> Booleans:
        """Return which cards are cut into instances; of shape (1, 1) if there are none."""
        modes = self.arrays.modes
        if MIG not in modes:
            return np.zeros((1, 1), np.bool_)
        cut: Booleans = self.present & (self.arrays.mode[self.window] == modes.index(MIG))
        return cut


class CardLoads(msgspec.Struct):
    """Use of the cards of a window: MiB, percent, containers, and pods with a card for themselves.

    `alone` and `slices` seldom change, so loads share them: replace them, never write into them.
    """

    memory: Integers
    cores: Integers
    slots: Integers
    alone: Integers
    slices: Slices

    @classmethod
    def of(cls, arrays: CardArrays, overlay: OverlayArrays, window: Window) -> Self:
        """Return the acknowledged use of each card, plus the use that the overlay adds."""
        return cls(
            arrays.used_memory[window] + overlay.memory[window],
            arrays.used_cores[window] + overlay.cores[window],
            arrays.used_slots[window] + overlay.slots[window],
            arrays.alone[window] + overlay.alone[window],
            arrays.slices[window],
        )

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        """Return the loads of unused cards."""
        memory, cores, slots, alone = np.zeros((4, *shape), np.int64)
        return cls(memory, cores, slots, alone, np.zeros(shape, np.uint64))

    def raised_to(self, other: Self) -> Self:
        """Return the larger use of each card; `alone` and `slices` are those of this load."""
        return type(self)(
            np.maximum(self.memory, other.memory),
            np.maximum(self.cores, other.cores),
            np.maximum(self.slots, other.slots),
            self.alone,
            self.slices,
        )

    def take(self, rows: Booleans, other: Self) -> None:
        """Replace the use of the cards of these rows by their use in another load."""
        where = rows[:, None]
        self.memory = np.where(where, other.memory, self.memory)
        self.cores = np.where(where, other.cores, self.cores)
        self.slots = np.where(where, other.slots, self.slots)
        self.alone = np.where(where, other.alone, self.alone)
        self.slices = np.where(where, other.slices, self.slices)


def rows_with_any(cards: Booleans) -> Booleans:
    """Return which rows have any of these cards.

    Numpy is slow along a short last axis: transposed first, the same takes a quarter of the time.
    """
    rows: Booleans = np.logical_or.reduce(np.ascontiguousarray(cards.T), axis=0)
    return rows
