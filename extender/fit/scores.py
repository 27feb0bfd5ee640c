"""Scoring: how full a card or a node would be, and how good a node is for it."""

from typing import Final

import numpy as np

from extender.fit import rowwise
from extender.fit.card_filters import CardAmounts
from extender.fit.card_window import CardLoads, CardWindow
from extender.fit.node_score_expression import Floats, NodeScore
from extender.inventory.arrays import Booleans, Integers
from extender.scheduler_api.extender_wire import SCORE_MAX
from ledger.kube.requests.device_requests import Weights

_WHOLE_FIRST: Final = 100.0
"""What a card that stays untouched counts: more than how full a node is, which is at most 30."""

_FULLNESS: Final = 10.0
"""What one resource counts that a node has promised completely."""


def fullness(cards: CardWindow, load: CardLoads, wanted: CardAmounts, weights: Weights) -> Floats:
    """Return how full each card would be: the sum of the shares in use, each by its weight."""
    found: Floats = (
        weights.slots * share(load.slots + 1, cards.slots)
        + weights.cores * share(load.cores + wanted.cores, cards.cores)
        + weights.memory * share(load.memory + wanted.memory, cards.memory)
    )
    return found


def share(used: Integers, limit: Integers) -> Floats:
    """Return which part of a limit is used, 0 of no limit."""
    found: Floats = np.divide(used, limit, out=np.zeros(limit.shape), where=limit > 0)
    return found


def nodes(
    cards: CardWindow, before: CardLoads, after: CardLoads, policy: str, own: NodeScore | None
) -> Floats:
    """Return how good each node is, higher is better, with these loads before and after."""
    shares = {
        name: share(rowwise.total_of(used, cards.present), rowwise.total(limit))
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
        score -= _WHOLE_FIRST * rowwise.count(touched)
    return score


def scaled(scores: Floats, feasible: Booleans, worst: int = 0, best: int = SCORE_MAX) -> Integers:
    """Return scores as whole numbers from worst to best, by default 0 to 10.

    The best feasible node has the best, none with less has more, and where it is not feasible is 0.
    """
    found = np.zeros(len(scores), np.int64)
    if not feasible.any():
        return found
    among = scores[feasible]
    low, high = float(among.min()), float(among.max())
    if low == high:
        found[feasible] = best
    else:
        found[feasible] = worst + ((best - worst) * ((among - low) / (high - low))).astype(np.int64)
    return found


def _own(cards: CardWindow, after: CardLoads, shares: dict[str, Floats], own: NodeScore) -> Floats:
    count = rowwise.count(cards.present)
    untouched = rowwise.count(cards.present & (after.slots == 0))
    values = {**shares, "whole": share(untouched, count), "cards": count.astype(np.float64)}
    found: Floats = np.broadcast_to(own.score(values), count.shape).copy()
    return found
