"""Scores of cards and nodes: which fitting card is the best, and how good each node is.

Each card policy gives keys, the most important first, and the card with the lowest keys wins. Among
equal cards the least used one wins, then the one in the first column. Columns are in the order of
index and uuid, so the choice is the same in every replica.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from extender.fit import topology
from extender.fit.card_filters import CardAmounts, count_by_row
from extender.fit.card_window import CardLoads, CardWindow
from extender.fit.node_score_expression import Floats, NodeScore
from extender.inventory.card_arrays import Booleans, Integers
from extender.scheduler_api.extender_wire import SCORE_MAX
from ledger.kube.requests.device_requests import Weights

_WHOLE_FIRST: Final = 100.0
"""Weight of a card that stays unused: more than the fullness of a node, which is at most 30."""

_FULLNESS: Final = 10.0
"""Weight of one resource that a node has promised completely."""

_ELSEWHERE: Final = 1 << 20
"""Added to the number of a NUMA node that has not as many cards as are wanted."""

_DECISIVE: Final = frozenset({"binpack", "spread", "whole"})
"""The policies after which `spread` is not added as the last word."""


_NO_ORDER: Final = frozenset({"mutex"})
"""The policies that prefer no card: `mutex` is a rule, and what fits is unused."""


class CardCandidates(NamedTuple):
    """The cards that may be given, what is on them, and what would be taken, so many `times`."""

    cards: CardWindow
    load: CardLoads
    wanted: CardAmounts
    fitting: Booleans
    times: int


def policy_keys(offer: CardCandidates, policies: tuple[str, ...], weights: Weights) -> list[Floats]:
    """Return the keys of each card, the most important first; none without a policy."""
    if _NO_ORDER.issuperset(policies):
        return []
    words = policies if _DECISIVE.intersection(policies) else (*policies, "spread")
    return [key for word in words for key in _KEYS[word](offer, weights)]


def _binpack(offer: CardCandidates, weights: Weights) -> Iterator[Floats]:
    yield -fullness(offer.cards, offer.load, offer.wanted, weights)


def _spread(offer: CardCandidates, weights: Weights) -> Iterator[Floats]:
    yield fullness(offer.cards, offer.load, offer.wanted, weights)


def _whole(offer: CardCandidates, weights: Weights) -> Iterator[Floats]:
    """Prefer cards that are shared already, and of these the one with least left over."""
    yield (offer.load.slots == 0).astype(np.float64)
    yield (offer.cards.memory - offer.load.memory - offer.wanted.memory).astype(np.float64)


def _numa(offer: CardCandidates, weights: Weights) -> Iterator[Floats]:
    """Prefer NUMA nodes where as many cards fit as are wanted; then take one after the other."""
    numa = offer.cards.arrays.numa[offer.cards.window]
    key = numa.astype(np.float64)
    for number in np.unique(numa[offer.fitting]):
        there = offer.fitting & (numa == number)
        too_few = count_by_row(there)[:, None] < offer.times
        key += _ELSEWHERE * (there & too_few)
    yield key


def _topology(offer: CardCandidates, weights: Weights) -> Iterator[Floats]:
    """Prefer, for one card, the one whose links are the least loss to the others.

    Several cards are chosen as a set (`topology.sets`), so this key has no effect then.
    """
    if offer.times == 1:
        yield topology.loss(offer.cards, offer.fitting)
    else:
        yield np.zeros(offer.cards.shape)


def _none(offer: CardCandidates, weights: Weights) -> Iterator[Floats]:
    """Prefer nothing."""
    return iter(())


def fullness(cards: CardWindow, load: CardLoads, wanted: CardAmounts, weights: Weights) -> Floats:
    """Return how full each card would be: the sum of the shares in use, each by its weight."""
    weighted: Floats = (
        weights.slots * share(load.slots + 1, cards.slots)
        + weights.cores * share(load.cores + wanted.cores, cards.cores)
        + weights.memory * share(load.memory + wanted.memory, cards.memory)
    )
    return weighted


def share(used: Integers, limit: Integers) -> Floats:
    """Return which part of a limit is used, 0 of no limit."""
    shares: Floats = np.divide(used, limit, out=np.zeros(limit.shape), where=limit > 0)
    return shares


def nodes(
    cards: CardWindow, before: CardLoads, after: CardLoads, policy: str, own: NodeScore | None
) -> Floats:
    """Return how good each node is, higher is better, with these loads before and after."""
    shares = {
        # Sums of each row by einsum, because numpy's sum is slow along a short last axis.
        name: share(np.einsum("rc,rc->r", used, cards.present), np.einsum("rc->r", limit))
        for name, used, limit in (
            ("memory", after.memory, cards.memory),
            ("cores", after.cores, cards.cores),
            ("slots", after.slots, cards.slots),
        )
    }
    if own is not None:
        return _own(cards, after, shares, own)
    score: Floats = _FULLNESS * (shares["slots"] + shares["cores"] + shares["memory"])
    if policy == "spread":
        np.negative(score, out=score)
    if policy == "whole":
        touched = cards.present & (before.slots == 0) & (after.slots > 0)
        score -= _WHOLE_FIRST * count_by_row(touched)
    return score


def scaled(scores: Floats, feasible: Booleans, worst: int = 0, best: int = SCORE_MAX) -> Integers:
    """Return scores as whole numbers from worst to best, by default 0 to 10.

    The feasible node with the highest score gets `best`, an infeasible node 0. The order of the
    scores is kept.
    """
    numbers = np.zeros(len(scores), np.int64)
    if not feasible.any():
        return numbers
    among = scores[feasible]
    low, high = float(among.min()), float(among.max())
    if low == high:
        numbers[feasible] = best
    else:
        numbers[feasible] = worst + ((best - worst) * ((among - low) / (high - low))).astype(
            np.int64
        )
    return numbers


def _own(cards: CardWindow, after: CardLoads, shares: dict[str, Floats], own: NodeScore) -> Floats:
    count = count_by_row(cards.present)
    untouched = count_by_row(cards.present & (after.slots == 0))
    values = {**shares, "whole": share(untouched, count), "cards": count.astype(np.float64)}
    scores: Floats = np.broadcast_to(own.score(values), count.shape).copy()
    return scores


_KEYS: Final[dict[str, Callable[[CardCandidates, Weights], Iterator[Floats]]]] = {
    "binpack": _binpack,
    "spread": _spread,
    "numa": _numa,
    "mutex": _none,
    "topology-aware": _topology,
    "whole": _whole,
}
