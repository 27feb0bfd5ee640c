"""Prioritizing: how good each node is for a pod, the best one 10."""

import numpy as np

from extender.asking import Fitted
from extender.filtering import Candidates
from extender.scoring import scaled
from extender.wire import HostPriority


def prioritized(fitted: Fitted, found: Candidates) -> list[HostPriority]:
    """Score the nodes that were asked about; one where the pod does not fit has 0."""
    if found.names == fitted.passed:
        score, feasible = fitted.score[fitted.feasible], np.ones(len(found.names), np.bool_)
    else:
        places = [fitted.places.get(name, -1) for name in found.names]
        # What is not known is looked up at the end, where there is nothing that fits.
        score = np.append(fitted.score, 0.0)[places]
        feasible = np.append(fitted.feasible, np.False_)[places]
    return list(map(HostPriority, found.names, scaled(score, feasible).tolist()))
