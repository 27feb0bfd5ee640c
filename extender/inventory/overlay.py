"""Overlay: what is probably taken of cards although the ledger does not say so yet.

kube-scheduler binds one pod while it already asks about the next. A **guess** is where a pod
probably goes; it ends when the ledger has placed the pod, or at its deadline. What is **kept** for
a pod that others are evicted for is taken for everybody else. Both only steer filter and
prioritize: the ledger decides without them.
"""

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from extender.inventory.arrays import COLUMNS_FIRST, ROWS_FIRST, Integers
from ledger.core.model.cards import Booking

GUESSES_MAX: Final = 1_000
"""Most guesses at a time; one more, and the oldest is forgotten."""

_NOBODY: Final = frozenset[int]()
_NEVER: Final = float("inf")


class _Taken(NamedTuple):
    """What one pod takes of a row: bookings by column, and the columns it wants for itself."""

    row: int
    bookings: Mapping[int, Booking]
    alone: Set[int]
    until: float


class Overlay:
    """Every array has the shape of the arrays that it lies over, `(rows, columns)`.

    `memory` is MiB, `cores` percent, `slots` containers, and `alone` counts the pods that want a
    card for themselves.
    """

    def __init__(self, rows: int = ROWS_FIRST, columns: int = COLUMNS_FIRST) -> None:
        """Make room for so many; `grow` makes more."""
        shape = (rows, columns)
        self.memory: Integers = np.zeros(shape, np.int64)
        self.cores: Integers = np.zeros(shape, np.int64)
        self.slots: Integers = np.zeros(shape, np.int64)
        self.alone: Integers = np.zeros(shape, np.int64)
        self._guesses: dict[str, _Taken] = {}
        self._kept: dict[str, _Taken] = {}
        self._next = _NEVER

    def __len__(self) -> int:
        """Return how many guesses there are."""
        return len(self._guesses)

    def grow(self, rows: int, columns: int) -> None:
        """Make room for at least so many."""
        have = self.memory.shape
        padding = ((0, max(0, rows - have[0])), (0, max(0, columns - have[1])))
        if padding == ((0, 0), (0, 0)):
            return
        for name in ("memory", "cores", "slots", "alone"):
            setattr(self, name, np.pad(getattr(self, name), padding))

    def add(
        self,
        uid: str,
        row: int,
        bookings: Mapping[int, Booking],
        alone: Set[int] = _NOBODY,
        until: float = _NEVER,
    ) -> None:
        """Guess, until a loop time in seconds, that the pod of a uid takes this; only this."""
        self.drop(uid)
        if len(self._guesses) >= GUESSES_MAX:
            self.drop(next(iter(self._guesses)))
        taken = self._guesses[uid] = _Taken(row, bookings, alone, until)
        self._next = min(self._next, until)
        self._count(taken, 1)

    def drop(self, uid: str) -> bool:
        """Forget the guess about a pod; return whether there was one."""
        taken = self._guesses.pop(uid, None)
        if taken is not None:
            self._count(taken, -1)
        return taken is not None

    def going_to(self, but: str) -> set[int]:
        """Return the rows that pods are guessed to be on their way to, other than this uid."""
        return {taken.row for uid, taken in self._guesses.items() if uid != but}

    def expire(self, now: float) -> None:
        """Forget the guesses whose deadline has come, at a loop time in seconds."""
        if now < self._next:
            return
        for uid in [uid for uid, taken in self._guesses.items() if taken.until <= now]:
            self.drop(uid)
        self._next = min((taken.until for taken in self._guesses.values()), default=_NEVER)

    def keep(
        self, uid: str, row: int, bookings: Mapping[int, Booking], alone: Set[int] = _NOBODY
    ) -> None:
        """Keep this for the pod of a uid until it is released; only this."""
        self.release(uid)
        taken = self._kept[uid] = _Taken(row, bookings, alone, _NEVER)
        self._count(taken, 1)

    def release(self, uid: str) -> None:
        """Keep nothing for a pod any more."""
        taken = self._kept.pop(uid, None)
        if taken is not None:
            self._count(taken, -1)

    def clear(self, row: int) -> None:
        """Forget everything about a row: its columns mean other cards from now on."""
        for uid in [uid for uid, taken in self._guesses.items() if taken.row == row]:
            self.drop(uid)
        for uid in [uid for uid, taken in self._kept.items() if taken.row == row]:
            self.release(uid)

    @contextmanager
    def without(self, uid: str, now: float) -> Iterator["Overlay"]:
        """Leave out, within the block, what is guessed about a pod and kept for it.

        Guesses whose deadline has come at loop time `now` in seconds are forgotten.
        """
        self.expire(now)
        found = [taken[uid] for taken in (self._guesses, self._kept) if uid in taken]
        for taken in found:
            self._count(taken, -1)
        try:
            yield self
        finally:
            for taken in found:
                self._count(taken, 1)

    @contextmanager
    def without_guesses(self) -> Iterator["Overlay"]:
        """Leave out, within the block, all that is guessed; guess nothing there."""
        guesses, following = self._guesses, self._next
        self._guesses, self._next = {}, _NEVER
        for taken in guesses.values():
            self._count(taken, -1)
        try:
            yield self
        finally:
            self._guesses, self._next = guesses, following
            for taken in guesses.values():
                self._count(taken, 1)

    def _count(self, taken: _Taken, sign: int) -> None:
        for column, booking in taken.bookings.items():
            self.memory[taken.row, column] += sign * booking.memory
            self.cores[taken.row, column] += sign * booking.cores
            self.slots[taken.row, column] += sign * booking.slots
        for column in taken.alone:
            self.alone[taken.row, column] += sign
