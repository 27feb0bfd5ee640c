"""Instances: where on cards that are cut into instances one more has room.

The smallest instance that bears the request is taken, at the first place that is free: by memory,
then slices, then name. It is booked with all that it has. Whoever asks for more than the largest
has, as for a whole card, gets the largest.
"""

from functools import lru_cache
from typing import Final, NamedTuple, cast

import numpy as np

from extender.arrays import Arrays, Integers
from extender.loads import Cards, Loads
from extender.rows import SLICES_MAX
from ledger.core.cards import Profile

NONE: Final = -1
"""The number of the instance on a card that is not cut, or that has no room for one."""

TABLES_MAX: Final = 1_024
"""Tables of profiles whose instances are remembered."""


class Instance(NamedTuple):
    """An instance of a profile at a place, `bits` with one for each slice that it covers."""

    profile: Profile
    start: int
    size: int
    bits: int


class Room(NamedTuple):
    """For each card: the number of the instance in its table, what it books, its slices."""

    number: Integers
    memory: Integers
    cores: Integers
    bits: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


@lru_cache(TABLES_MAX)
def of_table(profiles: tuple[Profile, ...]) -> tuple[Instance, ...]:
    """Return all instances that profiles allow, in the order in which they are preferred."""
    ordered = sorted(profiles, key=lambda one: (one.memory, one.slices, one.name))
    return tuple(
        Instance(profile, start, size, ((1 << size) - 1) << start)
        for profile in ordered
        for start, size in profile.placements
        if 0 < size <= SLICES_MAX - start
    )


def of_card(arrays: Arrays, row: int, column: int, number: int) -> Instance | None:
    """Return an instance of a card by its number."""
    if number == NONE:
        return None
    return _of_number(arrays, int(arrays.table[row, column]))[number]


def room(cards: Cards, load: Loads, memory: Integers, cores: Integers) -> Room:
    """Return the instance for this many MiB and percent on each card that is cut and has room."""
    table = cards.arrays.table[cards.window]
    memory = np.broadcast_to(memory, cards.shape).copy()
    cores = np.broadcast_to(cores, cards.shape).copy()
    found = Room(np.full(cards.shape, NONE), memory, cores, np.zeros(cards.shape, np.uint64))
    for number in np.unique(table[cards.cut]):
        at = np.nonzero(cards.cut & (table == number))
        _place(_of_number(cards.arrays, int(number)), at, load, found)
    return found


def _of_number(arrays: Arrays, table: int) -> tuple[Instance, ...]:
    return of_table(cast("tuple[Profile, ...]", arrays.tables[table]))


def _place(known: tuple[Instance, ...], at: tuple[Integers, ...], load: Loads, found: Room) -> None:
    """Find the instance on the cards at these places, which have these instances."""
    if not known:
        return
    memory = np.minimum(found.memory[at], max(one.profile.memory for one in known))
    cores = np.minimum(found.cores[at], max(one.profile.cores for one in known))
    number, taken = np.full(len(memory), NONE), load.slices[at]
    for offer, one in enumerate(known):
        fits = (memory <= one.profile.memory) & (cores <= one.profile.cores)
        number[(number == NONE) & fits & ((taken & np.uint64(one.bits)) == 0)] = offer
    placed = np.nonzero(number != NONE)[0]
    rows, columns = at[0][placed], at[1][placed]
    chosen = [known[offer] for offer in number[placed]]
    found.number[rows, columns] = number[placed]
    found.memory[rows, columns] = [one.profile.memory for one in chosen]
    found.cores[rows, columns] = [one.profile.cores for one in chosen]
    found.bits[rows, columns] = [one.bits for one in chosen]
