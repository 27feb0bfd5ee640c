"""Unrecorded card use: the overlay with the use of cards that the ledger does not record yet.

kube-scheduler binds one pod while it already asks about the next. An **assumed** placement is the
probable placement of a pod. It ends when the ledger has placed the pod, or at its deadline. Cards
that are **kept** for a preemptor count as its use for all other pods. Both only steer filter,
select and prioritize: the ledger decides without them.
"""

from collections.abc import Iterator, KeysView, Mapping, Set
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from extender.inventory.card_arrays import COLUMNS_FIRST, ROWS_FIRST, Integers
from ledger.core.model.card_bookings import Booking

ASSUMED_MAX: Final = 1_000
"""Most assumed placements at a time; beyond that, the oldest is forgotten."""

_NO_COLUMNS: Final = frozenset[int]()
_NEVER: Final = float("inf")


class _Taken(NamedTuple):
    """The bookings of one pod on a row by column, and the columns it wants for itself."""

    row: int
    bookings: Mapping[int, Booking]
    alone: Set[int]
    until: float


class UsageOverlay:
    """Every array has the shape of the arrays that it lies over, `(rows, columns)`.

    `memory` is MiB, `cores` percent, `slots` containers, and `alone` counts the pods that want a
    card for themselves.
    """

    def __init__(self, rows: int = ROWS_FIRST, columns: int = COLUMNS_FIRST) -> None:
        """Start with this many rows and columns; `grow` adds more."""
        shape = (rows, columns)
        self.memory: Integers = np.zeros(shape, np.int64)
        self.cores: Integers = np.zeros(shape, np.int64)
        self.slots: Integers = np.zeros(shape, np.int64)
        self.alone: Integers = np.zeros(shape, np.int64)
        self._assumed: dict[str, _Taken] = {}
        self._kept: dict[str, _Taken] = {}
        self._next = _NEVER

    def __len__(self) -> int:
        """Return the number of assumed placements."""
        return len(self._assumed)

    def copy(self) -> "UsageOverlay":
        """Return a copy of everything."""
        copy = UsageOverlay(0, 0)
        for name in ("memory", "cores", "slots", "alone"):
            setattr(copy, name, getattr(self, name).copy())
        copy._assumed, copy._kept = dict(self._assumed), dict(self._kept)
        copy._next = self._next
        return copy

    def grow(self, rows: int, columns: int) -> None:
        """Grow to at least this many rows and columns."""
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
        alone: Set[int] = _NO_COLUMNS,
        until: float = _NEVER,
    ) -> None:
        """Assume, until a loop time in seconds, that a pod takes this and nothing else."""
        self.drop(uid)
        if len(self._assumed) >= ASSUMED_MAX:
            self.drop(next(iter(self._assumed)))
        taken = self._assumed[uid] = _Taken(row, bookings, alone, until)
        self._next = min(self._next, until)
        self._count(taken, 1)

    def drop(self, uid: str) -> bool:
        """Forget the assumed placement of a pod; return whether there was one."""
        taken = self._assumed.pop(uid, None)
        if taken is not None:
            self._count(taken, -1)
        return taken is not None

    def going_to(self, but: str) -> set[int]:
        """Return the rows that pods other than this uid are assumed to be on their way to."""
        return {taken.row for uid, taken in self._assumed.items() if uid != but}

    def expire(self, now: float) -> None:
        """Forget the assumed placements whose deadline has come, at a loop time in seconds."""
        if now < self._next:
            return
        for uid in [uid for uid, taken in self._assumed.items() if taken.until <= now]:
            self.drop(uid)
        self._next = min((taken.until for taken in self._assumed.values()), default=_NEVER)

    def keep(
        self, uid: str, row: int, bookings: Mapping[int, Booking], alone: Set[int] = _NO_COLUMNS
    ) -> None:
        """Keep this and nothing else for the pod of a uid until it is released."""
        self.release(uid)
        taken = self._kept[uid] = _Taken(row, bookings, alone, _NEVER)
        self._count(taken, 1)

    def release(self, uid: str) -> None:
        """Keep no cards for a pod any more."""
        taken = self._kept.pop(uid, None)
        if taken is not None:
            self._count(taken, -1)

    def preemptors(self) -> KeysView[str]:
        """Return the uids of the pods for which cards are kept, the oldest first."""
        return self._kept.keys()

    def clear(self, row: int) -> None:
        """Forget everything about a row, whose columns are other cards from now on."""
        for uid in [uid for uid, taken in self._assumed.items() if taken.row == row]:
            self.drop(uid)
        for uid in [uid for uid, taken in self._kept.items() if taken.row == row]:
            self.release(uid)

    @contextmanager
    def without(self, uid: str, now: float) -> Iterator["UsageOverlay"]:
        """Ignore, within the block, what is assumed and kept for a pod.

        Assumed placements whose deadline has come at loop time `now` in seconds are forgotten.
        """
        self.expire(now)
        ignored = [taken[uid] for taken in (self._assumed, self._kept) if uid in taken]
        for taken in ignored:
            self._count(taken, -1)
        try:
            yield self
        finally:
            for taken in ignored:
                self._count(taken, 1)

    @contextmanager
    def without_assumed(self) -> Iterator["UsageOverlay"]:
        """Ignore all assumed placements within the block, in which none may be added."""
        assumed, following = self._assumed, self._next
        self._assumed, self._next = {}, _NEVER
        for taken in assumed.values():
            self._count(taken, -1)
        try:
            yield self
        finally:
            self._assumed, self._next = assumed, following
            for taken in assumed.values():
                self._count(taken, 1)

    def _count(self, taken: _Taken, sign: int) -> None:
        for column, booking in taken.bookings.items():
            self.memory[taken.row, column] += sign * booking.memory
            self.cores[taken.row, column] += sign * booking.cores
            self.slots[taken.row, column] += sign * booking.slots
        for column in taken.alone:
            self.alone[taken.row, column] += sign
