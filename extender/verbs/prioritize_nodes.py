"""The verb `prioritize`: how good each node is for a pod, the best one 10.

A scheduler that asks `select` has only the best nodes left and need not ask it. It is for
schedulers whose own scores count among all nodes on which the pod fits.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Final

import numpy as np

from extender.fit.card_and_node_scores import scaled
from extender.fit.feasible_nodes import chosen_parts
from extender.fit.inventory_fit import InventoryFit
from extender.inventory.assumed_placements import ASSUMED_SECONDS, AssumedPlacements
from extender.inventory.card_arrays import Booleans, Integers
from extender.inventory.inventory_loading import until_loaded
from extender.scheduler_api.extender_wire import SCORE_MAX, ExtenderArgs, HostPriority
from extender.scheduler_api.scheduling_request import (
    BoundedCache,
    SchedulingRequests,
)
from extender.verbs import node_verdicts
from extender.verbs.node_ranking import LaterNodes
from extender.verbs.node_verdicts import FilteredNodes
from ledger.core.model.denials import Denial
from ledger.runtime.counter_protocol import Count

FIRST_WORST: Final = 5
"""The score of the worst node that does not come later, if others do."""

LATER_BEST: Final = 4
"""The score of the best node that comes later, if others do not."""


class NodePrioritizer:
    """Answers the verb `prioritize` about the pods of one cluster."""

    def __init__(
        self,
        *,
        requests: SchedulingRequests,
        fit: InventoryFit,
        assumed: AssumedPlacements,
        later: LaterNodes,
        filtered: BoundedCache[FilteredNodes],
        clock: Callable[[], float],
        count: Count,
    ) -> None:
        """`filtered` are the last answers of the filter; `clock` is loop time in seconds."""
        self._requests, self._fit, self._assumed = requests, fit, assumed
        self._later, self._filtered = later, filtered
        self._clock, self._count = clock, count

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """Return how good each node is for a pod. Raises BadRequest and ExtenderUnavailable.

        The pod is then assumed to be on its way to the best node; the scheduler adds scores of its
        own, so that it may go elsewhere.
        """
        nodes = node_verdicts.candidates(args)
        if not self._fit.inventory.loaded:
            await until_loaded(self._fit.inventory, self._clock)
        assert args.pod is not None, "requests without a pod were refused"
        request = self._requests.read(args.pod)
        if isinstance(request, Denial) or not request.needs_cards:
            return [HostPriority(name, 0) for name in nodes.names]
        filtered = self._filtered.pop(request.uid, None)
        if filtered is None:
            filtered = node_verdicts.filtered(self._fit, request, nodes)
        later = self._later.of(request, filtered.fits)
        scores = node_scores(filtered, later, nodes.names)
        if SCORE_MAX in scores:
            place = filtered.names.index(nodes.names[scores.index(SCORE_MAX)])
            if place < len(filtered.fits.rows):
                arrays = self._fit.inventory.arrays
                parts = chosen_parts(filtered.fits, place, arrays, request.devices)
                self._assumed.assume(request, filtered.names[place], parts, ASSUMED_SECONDS)
        self._count("extender_answers_total", "prioritize", "scored")
        return list(map(HostPriority, nodes.names, scores))


def node_scores(filtered: FilteredNodes, later: Booleans, names: Sequence[str]) -> list[int]:
    """Return the score of each of these nodes, 0 for one where the pod does not fit.

    `later` marks the nodes that come after the others, in the order of `filtered.fits`.
    """
    if list(names) == list(compress(filtered.names, filtered.feasible.tolist())):
        at = np.nonzero(filtered.feasible)[0]
    else:
        # An unknown node is looked up at index -1, where nothing fits.
        places = dict(zip(filtered.names, range(len(filtered.names)), strict=True))
        at = np.array([places.get(name, -1) for name in names], np.int64)
    behind = np.zeros(len(filtered.score) + 1, np.bool_)
    behind[: len(later)] = later
    scores, feasible = (
        np.append(filtered.score, 0.0)[at],
        np.append(filtered.feasible, np.False_)[at],
    )
    first, rest = feasible & ~behind[at], feasible & behind[at]
    if not (first.any() and rest.any()):
        points: Integers = scaled(scores, feasible)
    else:
        points = scaled(scores, first, FIRST_WORST, SCORE_MAX) + scaled(scores, rest, 0, LATER_BEST)
    return list(points.tolist())
