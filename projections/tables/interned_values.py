"""Interned values: numbers for texts and amounts that many rows repeat.

Values are numbered in the order of their first occurrence in the log. After every `EPOCH` values
all of them are forgotten and get new numbers. So the memory is bounded, and all projections of one
log have the same numbers.
"""

import sqlite3
from typing import Final

from ledger.core.model.commands import BARRED
from projections.store.row_inserts import RowInsert

EPOCH: Final = 65_536
"""Numbers after which earlier values get new ones."""

REMEMBERED_MAX: Final = 8_192
"""Remembered numbers of several values together."""

FIXED: Final = ("", BARRED)
"""The values with the numbers 0 and 1, which have no row."""


RememberedNumbers = dict[tuple[object, ...], tuple[tuple[int, ...], object]]


class InternedValues:
    """The numbers of the values of the present epoch, and the rows of the table `interned`."""

    def __init__(self, known: dict[str | bytes, int] | None = None, last: int = 1) -> None:
        """Continue after the number `last`, with these values of its epoch."""
        self._numbers: dict[str | bytes, int] = {value: n for n, value in enumerate(FIXED)}
        self._numbers.update(known or {})
        self.remembered: RememberedNumbers = {}
        """The numbers of several values together; see `remember`."""
        self._last = last
        self._new: list[tuple[int, str | bytes, int]] = []

    @classmethod
    def load(cls, connection: sqlite3.Connection) -> "InternedValues":
        """Read the numbers that a projection has assigned in its present epoch."""
        (last,) = connection.execute("SELECT coalesce(max(number), 1) FROM interned").fetchone()
        rows = connection.execute(
            "SELECT body, number FROM interned WHERE number >= ?", (last // EPOCH * EPOCH,)
        )
        return cls(dict(rows), last)

    def number(self, value: str | bytes, position: int) -> int:
        """Return the number of a value, assigned at this position if it is new."""
        number = self._numbers.get(value)
        return self._assign(value, position) if number is None else number

    @staticmethod
    def remember(
        known: RememberedNumbers,
        values: tuple[object, ...],
        numbers: tuple[int, ...],
        compared: object,
    ) -> None:
        """Remember the numbers of several values until their epoch ends.

        `known` is `remembered` as it was before the first of the numbers was assigned: if an epoch
        ended since, some of them are forgotten, and so is `known`. An `id` in `values` is that of
        `compared`, which lives as long as they are remembered.
        """
        if len(known) >= REMEMBERED_MAX:
            known.clear()
        known[values] = numbers, compared

    def _assign(self, value: str | bytes, position: int) -> int:
        number = self._last = self._last + 1
        if number % EPOCH == 0:
            self._numbers = {fixed: n for n, fixed in enumerate(FIXED)}
            self.remembered = {}
        self._numbers[value] = number
        self._new.append((number, value, position))
        return number

    def write(self, connection: sqlite3.Connection) -> None:
        """Write the new values."""
        if self._new:
            _INSERT.write(connection, self._new)
            self._new.clear()


_INSERT: Final = RowInsert("interned", "number", "body", "opened")
