"""The choice of victims: the pods of a node to evict so that a pod of higher priority fits.

All candidates are removed, and then reprieved, the highest priority first, as long as the pod still
fits. So the highest priority among the victims is as low as possible, and no victim is unnecessary.
That is done in two orders, and the cheaper result is taken: reprieving the oldest first saves work,
reprieving the smallest first saves pods.

PodDisruptionBudgets are never violated: of the pods that a budget protects, only those of the
lowest priority may be evicted, and no more of them than it allows now.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ledger.core.evolve.placement_charges import bookings_of
from ledger.core.model.cards import Placement

Subject = tuple[str, str, str]
"""A pod by namespace, key and uid."""


class Candidate(NamedTuple):
    """A pod that may be evicted; `budgets` are the names of the budgets that protect it."""

    subject: Subject
    placed: Placement
    priority: int
    budgets: tuple[str, ...] = ()


EvictionCost = tuple[float, int, int]
"""The highest priority among the victims, their number, and the age of the oldest."""

Fits = Callable[[Sequence[Candidate]], bool]
"""Returns whether the pod fits once these have ended; if so, also when more have."""


def choose(
    candidates: Sequence[Candidate], allowed: Mapping[str, int], fits: Fits
) -> tuple[Candidate, ...] | None:
    """Return the victims, highest priority first; empty if none is needed, None if none help.

    `allowed` is how many pods each budget allows to be evicted now.
    """
    removable = _within(candidates, allowed)
    if not fits(removable):
        return None
    by_age = _spared(sorted(removable, key=_age), fits)
    by_size = _spared(sorted(removable, key=_size), fits)
    cheaper = by_size if eviction_cost(by_size) < eviction_cost(by_age) else by_age
    return tuple(sorted(cheaper, key=_age))


def eviction_cost(victims: Sequence[Candidate]) -> EvictionCost:
    """Return the cost of evicting these; no victim costs least, then low priorities do."""
    most = max((victim.priority for victim in victims), default=float("-inf"))
    oldest = min((victim.placed.time for victim in victims), default=0)
    return most, len(victims), -oldest


def _within(candidates: Sequence[Candidate], allowed: Mapping[str, int]) -> list[Candidate]:
    """Return the candidates that budgets allow, preferring those of low priority."""
    left = Counter(allowed)
    permitted = []
    for candidate in sorted(candidates, key=_age, reverse=True):
        if all(left[budget] > 0 for budget in candidate.budgets):
            left.subtract(candidate.budgets)
            permitted.append(candidate)
    return permitted


def _spared(removed: list[Candidate], fits: Fits) -> list[Candidate]:
    """Reprieve pods by bisection, the first ones first; return the others.

    A group that can be reprieved as a whole is not split.
    """
    victims = {victim.subject: victim for victim in removed}

    def spare(group: list[Candidate]) -> None:
        back = {victim.subject for victim in group}
        if fits([victim for subject, victim in victims.items() if subject not in back]):
            for subject in back:
                del victims[subject]
        elif len(group) > 1:
            half = len(group) // 2
            spare(group[:half])
            spare(group[half:])

    if removed:
        spare(removed)
    return list(victims.values())


def _age(candidate: Candidate) -> tuple[int, int, Subject]:
    """Order pods by priority, then the oldest first, because it has done more work."""
    return -candidate.priority, candidate.placed.time, candidate.subject


def _size(candidate: Candidate) -> tuple[int, int, int, tuple[int, int, Subject]]:
    """Order pods by priority, then by how little they hold."""
    held = bookings_of(candidate.placed).values()
    return -candidate.priority, len(held), sum(booking.memory for booking in held), _age(candidate)
