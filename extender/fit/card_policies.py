"""Policies: which of the cards that fit is the best, as keys of which the lowest wins.

The keys stand in order of importance, and what they leave open is decided by how little a card is
used, then by its place: columns stand in the order of index and uuid, so the answer is the same in
every replica.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from extender.fit import rowwise, scores, topology
from extender.fit.card_filters import CardAmounts
from extender.fit.card_window import CardLoads, CardWindow
from extender.fit.node_score_expression import Floats
from extender.inventory.arrays import Booleans
from ledger.kube.requests.device_requests import Weights

_ELSEWHERE: Final = 1 << 20
"""Added to the number of a NUMA node that has not as many cards as are wanted."""

_DECISIVE: Final = frozenset({"binpack", "spread", "whole"})
"""The policies that leave nothing for a last word to decide."""


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
    yield -scores.fullness(offer.cards, offer.load, offer.wanted, weights)


def _spread(offer: CardCandidates, weights: Weights) -> Iterator[Floats]:
    yield scores.fullness(offer.cards, offer.load, offer.wanted, weights)


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
        too_few = rowwise.count(there)[:, None] < offer.times
        key += _ELSEWHERE * (there & too_few)
    yield key


def _topology(offer: CardCandidates, weights: Weights) -> Iterator[Floats]:
    """Prefer, for one card, the one whose links are the least loss to the others.

    Several cards are chosen as a set (`topology.sets`), so that this has no say.
    """
    if offer.times == 1:
        yield topology.loss(offer.cards, offer.fitting)
    else:
        yield np.zeros(offer.cards.shape)


def _none(offer: CardCandidates, weights: Weights) -> Iterator[Floats]:
    """Prefer nothing."""
    return iter(())


_KEYS: Final[dict[str, Callable[[CardCandidates, Weights], Iterator[Floats]]]] = {
    "binpack": _binpack,
    "spread": _spread,
    "numa": _numa,
    "mutex": _none,
    "topology-aware": _topology,
    "whole": _whole,
}
