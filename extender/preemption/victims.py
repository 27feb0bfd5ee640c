"""Victims: who has to leave a node so that a more important pod fits there.

All that may leave are taken off, and then put back, the most important first, as long as the pod
still fits. So the most important one that has to leave is as unimportant as can be, and nobody
leaves for nothing. That is done in two orders, and the cheaper result is taken: putting the oldest
back first spares work, putting the smallest back first spares pods.

PodDisruptionBudgets are never overdrawn: of the pods that one protects, only the least important
may leave, and no more of them than it allows now.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ledger.core.evolve.placements import bookings_of
from ledger.core.model.cards import Placement

Subject = tuple[str, str, str]
"""A pod by namespace, key and uid."""


class Candidate(NamedTuple):
    """A pod that may have to leave; `budgets` are those that protect it, by any name."""

    subject: Subject
    placed: Placement
    priority: int
    budgets: tuple[str, ...] = ()


EvictionCost = tuple[float, int, int]
"""The priority of the most important victim, how many there are, and how old the oldest is."""

Fits = Callable[[Sequence[Candidate]], bool]
"""Says whether the pod fits once these have left; if so, also when more have."""


def choose(
    candidates: Sequence[Candidate], allowed: Mapping[str, int], fits: Fits
) -> tuple[Candidate, ...] | None:
    """Return who has to leave, nobody perhaps, the most important first; None if it is no use.

    `allowed` is how many pods each budget lets go now.
    """
    removable = _within(candidates, allowed)
    if not fits(removable):
        return None
    by_age = _spared(sorted(removable, key=_age), fits)
    by_size = _spared(sorted(removable, key=_size), fits)
    cheaper = by_size if eviction_cost(by_size) < eviction_cost(by_age) else by_age
    return tuple(sorted(cheaper, key=_age))


def eviction_cost(victims: Sequence[Candidate]) -> EvictionCost:
    """Return what it costs that these leave; nobody is cheapest, then who is unimportant."""
    most = max((one.priority for one in victims), default=float("-inf"))
    oldest = min((one.placed.time for one in victims), default=0)
    return most, len(victims), -oldest


def _within(candidates: Sequence[Candidate], allowed: Mapping[str, int]) -> list[Candidate]:
    """Return who may leave, the least important first where a budget lets only some of them go."""
    left = Counter(allowed)
    found = []
    for one in sorted(candidates, key=_age, reverse=True):
        if all(left[budget] > 0 for budget in one.budgets):
            left.subtract(one.budgets)
            found.append(one)
    return found


def _spared(removed: list[Candidate], fits: Fits) -> list[Candidate]:
    """Put back whom one can, the first first; return the others.

    Of a group that can be put back as a whole, nobody is tried alone.
    """
    victims = {one.subject: one for one in removed}

    def spare(group: list[Candidate]) -> None:
        back = {one.subject for one in group}
        if fits([one for subject, one in victims.items() if subject not in back]):
            for subject in back:
                del victims[subject]
        elif len(group) > 1:
            half = len(group) // 2
            spare(group[:half])
            spare(group[half:])

    if removed:
        spare(removed)
    return list(victims.values())


def _age(one: Candidate) -> tuple[int, int, Subject]:
    """Order pods by importance: of one priority the older one, whose work is worth more."""
    return -one.priority, one.placed.time, one.subject


def _size(one: Candidate) -> tuple[int, int, int, tuple[int, int, Subject]]:
    """Order pods by priority, then by how little they hold."""
    held = bookings_of(one.placed).values()
    return -one.priority, len(held), sum(booking.memory for booking in held), _age(one)
