"""Loads: the cards of the nodes that are asked for, and what is on them while cards are chosen."""

from typing import Final, Protocol, Self

import numpy as np

from extender.inventory.arrays import Arrays, Booleans, Integers, Slices
from ledger.core.model.cards import MIG

Window = slice | Integers
"""Which rows of the arrays are looked at."""

BLOCK_ROWS: Final = 1_024
"""Most rows that are worked on at a time."""


class OverlayArrays(Protocol):
    """What is probably being placed, in the shape of the arrays; see `Arrays` for the units."""

    memory: Integers
    cores: Integers
    slots: Integers
    alone: Integers


def window_of_rows(rows: Integers) -> tuple[Window, Integers]:
    """Return which rows to look at for these, and where these are among them.

    Where most rows of a stretch are asked for, all of it is looked at: a view costs nothing, but
    picking rows copies them.
    """
    if not len(rows):
        return slice(0, 0), rows
    first, last = int(rows.min()), int(rows.max()) + 1
    if 2 * len(rows) >= last - first:
        return slice(first, last), rows - first
    return rows, np.arange(len(rows))


def blocks_of_window(window: Window) -> list[Window]:
    """Return a window in pieces that are small enough to stay in the cache of a processor."""
    if not isinstance(window, slice):
        return [window[at : at + BLOCK_ROWS] for at in range(0, len(window), BLOCK_ROWS)]
    starts = range(window.start, max(window.stop, window.start + 1), BLOCK_ROWS)
    return [slice(at, min(at + BLOCK_ROWS, window.stop)) for at in starts]


class CardWindow:
    """The cards of a window: what they are and what they can bear. Nothing is changed here."""

    def __init__(self, arrays: Arrays, window: Window) -> None:
        """Look at these rows of the arrays."""
        self.arrays = arrays
        self.window = window
        self.present: Booleans = arrays.present[window]
        self.usable: Booleans = arrays.usable[window]
        self.cordoned: Booleans = arrays.cordoned[window]
        self.memory: Integers = arrays.memory[window]
        self.cores: Integers = arrays.cores[window]
        self.slots: Integers = arrays.slots[window]
        self.index: Integers = arrays.index[window]
        self.cut: Booleans = self._cut()
        self.any_cut = bool(self.cut.any())

    @property
    def shape(self) -> tuple[int, int]:
        """Return how many rows and columns there are."""
        rows, columns = self.present.shape
        return rows, columns

    def row_numbers(self) -> Integers:
        """Return the rows of the arrays that are looked at."""
        return np.arange(self.arrays.rows)[self.window]

    def _cut(self) -> Booleans:
        """Return which cards are cut into instances; shaped to be combined, if there are none."""
        modes = self.arrays.modes
        if MIG not in modes:
            return np.zeros((1, 1), np.bool_)
        cut: Booleans = self.present & (self.arrays.mode[self.window] == modes.index(MIG))
        return cut


class CardLoads:
    """What is on the cards of a window at some time: MiB, percent, containers, and who is alone.

    `alone` and `slices` are seldom changed, so copies share them: put others in their place.
    """

    def __init__(
        self, memory: Integers, cores: Integers, slots: Integers, alone: Integers, slices: Slices
    ) -> None:
        """Take over the arrays: the first three will be changed."""
        self.memory = memory
        self.cores = cores
        self.slots = slots
        self.alone = alone
        self.slices = slices

    @classmethod
    def of(cls, arrays: Arrays, overlay: OverlayArrays, window: Window) -> Self:
        """Return what is there and what is probably coming."""
        return cls(
            arrays.used_memory[window] + overlay.memory[window],
            arrays.used_cores[window] + overlay.cores[window],
            arrays.used_slots[window] + overlay.slots[window],
            arrays.alone[window] + overlay.alone[window],
            arrays.slices[window],
        )

    @classmethod
    def empty(cls, shape: tuple[int, int]) -> Self:
        """Return what is on cards that nobody uses."""
        memory, cores, slots, alone = np.zeros((4, *shape), np.int64)
        return cls(memory, cores, slots, alone, np.zeros(shape, np.uint64))

    def copy(self) -> Self:
        """Return the same, to be changed on its own."""
        memory, cores, slots = self.memory.copy(), self.cores.copy(), self.slots.copy()
        return type(self)(memory, cores, slots, self.alone, self.slices)

    def raise_to(self, other: Self) -> None:
        """Let each card bear the larger of both; who is alone, and slices, stay as they are."""
        np.maximum(self.memory, other.memory, out=self.memory)
        np.maximum(self.cores, other.cores, out=self.cores)
        np.maximum(self.slots, other.slots, out=self.slots)

    def take(self, rows: Booleans, other: Self) -> None:
        """Let the cards of these rows bear what they bear elsewhere."""
        where = rows[:, None]
        self.memory = np.where(where, other.memory, self.memory)
        self.cores = np.where(where, other.cores, self.cores)
        self.slots = np.where(where, other.slots, self.slots)
        self.alone = np.where(where, other.alone, self.alone)
        self.slices = np.where(where, other.slices, self.slices)
