"""The choice of a MIG instance on each card that is cut into instances.

The smallest instance that satisfies the request is taken: by memory, then slices, then name. Of its
possible placements the one is taken that leaves most instances possible; of equal ones the last for
an instance of one slice and the first for a larger one, so that the two grow towards each other.
The pod books the whole instance. A request for a whole card gets the largest instance; a request
for more MiB than the largest instance has gets none.
"""

from functools import lru_cache
from typing import Final, NamedTuple, cast

import numpy as np

from extender.fit.card_window import CardLoads, CardWindow, rows_with_any
from extender.inventory.card_arrays import CardArrays, Integers, Slices
from extender.inventory.card_rows import SLICES_MAX
from ledger.core.model.cards import Profile
from ledger.kube.requests.device_requests import DeviceRequest
from ledger.kube.vendors.vendors import WHOLE

NONE: Final = -1
"""The instance number of a card that is not cut or has no room."""

TABLES_MAX: Final = 1_024
"""Tables of profiles whose instances are cached."""


class Instance(NamedTuple):
    """An instance of a profile at a placement; `bits` has a one for each slice it covers."""

    profile: Profile
    start: int
    size: int
    bits: int


class InstanceChoice(NamedTuple):
    """For each card the number of the instance in its table, its amounts and its slices."""

    number: Integers
    memory: Integers
    cores: Integers
    bits: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


@lru_cache(TABLES_MAX)
def instances_of(profiles: tuple[Profile, ...]) -> tuple[Instance, ...]:
    """Return all instances that profiles allow, in the order in which they are preferred."""
    ordered = sorted(profiles, key=lambda profile: (profile.memory, profile.slices, profile.name))
    return tuple(
        Instance(profile, start, size, ((1 << size) - 1) << start)
        for profile in ordered
        for start, size in sorted(profile.placements, key=_place_of)
        if 0 < size <= SLICES_MAX - start
    )


def _place_of(placement: tuple[int, int]) -> int:
    start, size = placement
    return -start if size == 1 else start


def instance_of_card(arrays: CardArrays, row: int, column: int, number: int) -> Instance:
    """Return an instance of a card by its number, which is not `NONE`."""
    return _of_number(arrays, int(arrays.table[row, column]))[number]


def choose_instances(
    cards: CardWindow, load: CardLoads, request: DeviceRequest, memory: Integers
) -> InstanceChoice:
    """Return the instance for a request of this many MiB on each card that is cut and has room."""
    table = cards.arrays.table[cards.window]
    memory = np.broadcast_to(memory, cards.shape).copy()
    cores = np.full(cards.shape, request.cores)
    choice = InstanceChoice(
        np.full(cards.shape, NONE), memory, cores, np.zeros(cards.shape, np.uint64)
    )
    for number in np.unique(table[cards.cut]):
        at = np.nonzero(cards.cut & (table == number))
        _place(_of_number(cards.arrays, int(number)), at, load, request, choice)
    return choice


def _of_number(arrays: CardArrays, table: int) -> tuple[Instance, ...]:
    return instances_of(cast("tuple[Profile, ...]", arrays.tables[table]))


def _place(
    known: tuple[Instance, ...],
    at: tuple[Integers, ...],
    load: CardLoads,
    request: DeviceRequest,
    choice: InstanceChoice,
) -> None:
    """Choose instances on the cards at these indexes, which all have these instances."""
    if not known:
        return
    memory, cores = choice.memory[at], choice.cores[at]
    if request.percentage == WHOLE:
        memory = np.minimum(memory, max(instance.profile.memory for instance in known))
    if request.exclusive:
        cores = np.minimum(cores, max(instance.profile.cores for instance in known))
    number = _preferred(known, memory, cores, load.slices[at])
    placed = np.nonzero(number != NONE)[0]
    rows, columns = at[0][placed], at[1][placed]
    chosen = [known[offer] for offer in number[placed]]
    choice.number[rows, columns] = number[placed]
    choice.memory[rows, columns] = [instance.profile.memory for instance in chosen]
    choice.cores[rows, columns] = [instance.profile.cores for instance in chosen]
    choice.bits[rows, columns] = [instance.bits for instance in chosen]


def _preferred(
    known: tuple[Instance, ...], memory: Integers, cores: Integers, taken: Slices
) -> Integers:
    """Return for each card which instance is taken, `NONE` where none has room."""
    bits = np.array([instance.bits for instance in known], np.uint64)
    possible = (taken[:, None] & bits) == 0
    fits = possible & (memory[:, None] <= [instance.profile.memory for instance in known])
    fits &= cores[:, None] <= [instance.profile.cores for instance in known]
    overlap = (bits[:, None] & bits) != 0
    lost = possible.astype(np.int64) @ overlap.astype(np.int64)
    cost = _ranks(known) * (len(known) + 1) + lost
    best = np.where(fits, cost, np.iinfo(np.int64).max).argmin(axis=1)
    preferred: Integers = np.where(rows_with_any(fits), best, NONE)
    return preferred


def _ranks(known: tuple[Instance, ...]) -> Integers:
    """Return the rank of the profile of each instance, 0 for the smallest."""
    profiles = list(dict.fromkeys(instance.profile for instance in known))
    return np.array([profiles.index(instance.profile) for instance in known], np.int64)
