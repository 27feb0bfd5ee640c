"""Prioritizing: how good each node is for a pod, the best one 10.

Some nodes come after all others, however good they are: one that hands cards out to one pod at a
time, and is doing so, lets the next one wait; and of one that has just room enough, while others
place pods, too, it is not sure that it still has when the pod is bound.
"""

from typing import Final

import numpy as np

from extender.fit.node_score_expression import Floats
from extender.fit.scores import scaled
from extender.inventory.arrays import Booleans, Integers
from extender.scheduler_api.extender_wire import SCORE_MAX, HostPriority
from extender.scheduler_api.scheduling_request import FilteredNodes
from extender.verbs.filter_nodes import Candidates

FIRST_WORST: Final = 5
"""The score of the worst node that does not come later, if others do."""

LATER_BEST: Final = 4
"""The score of the best node that comes later, if others do not."""


def prioritized(fitted: FilteredNodes, later: Booleans, found: Candidates) -> list[HostPriority]:
    """Score the nodes that were asked about; one where the pod does not fit has 0.

    `later` are those that come after the others, of the nodes in the order of `fitted.fits`.
    """
    if found.names == fitted.passed:
        at = np.nonzero(fitted.feasible)[0]
    else:
        # What is not known is looked up at the end, where there is nothing that fits.
        at = np.array([fitted.places.get(name, -1) for name in found.names], np.int64)
    behind = np.zeros(len(fitted.score) + 1, np.bool_)
    behind[: len(later)] = later
    scores = _points(np.append(fitted.score, 0.0)[at], _with_nothing(fitted)[at], behind[at])
    return list(map(HostPriority, found.names, scores.tolist()))


def _with_nothing(fitted: FilteredNodes) -> Booleans:
    """Return where it fits, and at the end that it does not."""
    return np.append(fitted.feasible, np.False_)


def _points(scores: Floats, feasible: Booleans, later: Booleans) -> Integers:
    first, rest = feasible & ~later, feasible & later
    if not (first.any() and rest.any()):
        return scaled(scores, feasible)
    best = scaled(scores, first, FIRST_WORST, SCORE_MAX)
    return best + scaled(scores, rest, 0, LATER_BEST)
