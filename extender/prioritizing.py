"""Prioritizing: how good each node is for a pod, the best one 10."""

from extender.asking import Fitted
from extender.filtering import Candidates
from extender.fitting import priorities
from extender.selecting import Selecting
from extender.wire import HostPriority


def prioritized(selecting: Selecting, fitted: Fitted, found: Candidates) -> list[HostPriority]:
    """Score the nodes that were asked about; one where the pod does not fit has 0."""
    rows = selecting.rows_of(found.names)
    scores = priorities(fitted.fits).tolist()
    at = [fitted.index.get(row, -1) if row is not None else -1 for row in rows]
    return [
        HostPriority(name, scores[place] if place >= 0 else 0)
        for name, place in zip(found.names, at, strict=True)
    ]
