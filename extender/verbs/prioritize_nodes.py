"""The verb `prioritize`: how good each node is for a pod, the best one 10.

Two groups of nodes come after all others, at any score. The first are nodes on which HAMi's device
plugin is handing out cards, because the pod would wait for it. The second are nodes that are nearly
full while other extenders place pods, because the room may be gone when the pod is bound.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Final

import msgspec
import numpy as np

from extender.fit.card_and_node_scores import scaled
from extender.fit.feasible_nodes import FitResult, chosen_parts
from extender.fit.fit_question import NO_BOUND
from extender.fit.inventory_fit import InventoryFit
from extender.inventory.assumed_placements import ASSUMED_SECONDS, AssumedPlacements
from extender.inventory.card_arrays import Booleans, Integers
from extender.inventory.inventory_loading import until_loaded
from extender.scheduler_api.extender_wire import SCORE_MAX, ExtenderArgs, HostPriority
from extender.scheduler_api.scheduling_request import (
    BoundedCache,
    SchedulingRequest,
    SchedulingRequests,
)
from extender.verbs import filter_nodes
from extender.verbs.filter_nodes import FilteredNodes
from ledger.core.model.cards import HAMI, Phase
from ledger.core.model.denials import Denial
from ledger.kube.requests.device_requests import ContainerDeviceRequests
from ledger.runtime.counter_protocol import Count

FIRST_WORST: Final = 5
"""The score of the worst node that does not come later, if others do."""

LATER_BEST: Final = 4
"""The score of the best node that comes later, if others do not."""

SPARE_TIMES: Final = (4, 2)
"""How many such pods a node should have room for while other extenders place pods, too."""


class NodePrioritizer:
    """Answers the verb `prioritize` about the pods of one cluster."""

    def __init__(
        self,
        *,
        requests: SchedulingRequests,
        fit: InventoryFit,
        assumed: AssumedPlacements,
        filtered: BoundedCache[FilteredNodes],
        clock: Callable[[], float],
        count: Count,
    ) -> None:
        """`filtered` are the last answers of the filter; `clock` is loop time in seconds."""
        self._requests, self._fit, self._assumed = requests, fit, assumed
        self._filtered, self._clock, self._count = filtered, clock, count

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """Return how good each node is for a pod. Raises BadRequest and ExtenderUnavailable.

        The pod is then assumed to be on its way to the best node; the scheduler adds scores of its
        own, so that it may go elsewhere.
        """
        nodes = filter_nodes.candidates(args)
        if not self._fit.inventory.loaded:
            await until_loaded(self._fit.inventory, self._clock)
        assert args.pod is not None, "requests without a pod were refused"
        request = self._requests.read(args.pod)
        if isinstance(request, Denial) or not request.needs_cards:
            return [HostPriority(name, 0) for name in nodes.names]
        filtered = self._filtered.pop(request.uid, None)
        if filtered is None:
            _, filtered = filter_nodes.filtered(self._fit, request, nodes)
        later = rows_handing_out(self._fit, request, filtered.fits.rows)
        if self._assumed.contested():
            later |= nearly_full(self._fit, request, filtered.fits)
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


def rows_handing_out(fit: InventoryFit, request: SchedulingRequest, rows: Integers) -> Booleans:
    """Return the rows on which a pod would probably wait until another pod has its cards.

    That pod is placed there already, or assumed to be on its way there.
    """
    arrays, overlay = fit.inventory.arrays, fit.inventory.overlay
    taken: Booleans = arrays.waiting[rows] > 0
    going_to = overlay.going_to(but=request.uid)
    if going_to:
        taken |= np.isin(rows, list(going_to))
    for place in np.nonzero(taken)[0].tolist():
        taken[place] = arrays.keepers[rows[place]] == HAMI
    return taken


def nearly_full(fit: InventoryFit, request: SchedulingRequest, fits: FitResult) -> Booleans:
    """Return the feasible rows without room for several such pods.

    While other extenders place pods, such a node may be full before the pod is bound. If no
    node has room for the larger number of `SPARE_TIMES`, the smaller number counts.
    """
    for times in SPARE_TIMES:
        tight = _without_room_for(fit, times, request, fits)
        if (fits.feasible & ~tight).any():
            return tight
    return np.zeros_like(fits.feasible)


def _without_room_for(
    fit: InventoryFit, times: int, request: SchedulingRequest, fits: FitResult
) -> Booleans:
    """Return the feasible rows without room for this many such pods."""
    mask = fits.feasible.copy()
    several = msgspec.structs.replace(
        request.devices, containers=_several(request.devices.containers, times)
    )
    question = msgspec.structs.replace(
        fit.question(request, fits.rows[mask]), request=several, memory_room=NO_BOUND
    )
    mask[mask] = ~fit.answer(request, question).feasible
    return mask


def _several(
    containers: tuple[ContainerDeviceRequests, ...], times: int
) -> tuple[ContainerDeviceRequests, ...]:
    """Return the requests of this many pods that run at the same time."""
    beside = tuple(container for container in containers if container.phase != Phase.INIT)
    return containers + beside * (times - 1)
