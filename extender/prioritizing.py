"""Prioritizing: how good each node is for a pod, the best one 10.

A node that hands cards out to one pod at a time, and is doing so, lets the next one wait. It comes
after all nodes where nobody has to wait, however good it is.
"""

from typing import Final

import numpy as np

from extender.arrays import Booleans, Integers
from extender.asking import Fitted
from extender.expressions import Floats
from extender.filtering import Candidates
from extender.scoring import PRIORITY_MAX, scaled
from extender.wire import HostPriority

FREE_WORST: Final = 5
"""The score of the worst node where nobody waits, if others are busy."""

BUSY_BEST: Final = 4
"""The score of the best busy node, if others are not."""


def prioritized(fitted: Fitted, busy: Booleans, found: Candidates) -> list[HostPriority]:
    """Score the nodes that were asked about; one where the pod does not fit has 0.

    `busy` is about the nodes that the ledger knows, in the order of `fitted.fits`.
    """
    if found.names == fitted.passed:
        at = np.nonzero(fitted.feasible)[0]
    else:
        # What is not known is looked up at the end, where there is nothing that fits.
        at = np.array([fitted.places.get(name, -1) for name in found.names], np.int64)
    waits = np.zeros(len(fitted.score) + 1, np.bool_)
    waits[: len(busy)] = busy
    scores = _points(np.append(fitted.score, 0.0)[at], _with_nothing(fitted)[at], waits[at])
    return list(map(HostPriority, found.names, scores.tolist()))


def _with_nothing(fitted: Fitted) -> Booleans:
    """Return where it fits, and at the end that it does not."""
    return np.append(fitted.feasible, np.False_)


def _points(scores: Floats, feasible: Booleans, busy: Booleans) -> Integers:
    free, waiting = feasible & ~busy, feasible & busy
    if not (free.any() and waiting.any()):
        return scaled(scores, feasible)
    best = scaled(scores, free, FREE_WORST, PRIORITY_MAX)
    return best + scaled(scores, waiting, 0, BUSY_BEST)
