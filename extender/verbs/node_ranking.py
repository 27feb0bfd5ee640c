"""Node ranking: which nodes come after all others at any score, and which nodes are the best.

Two groups of nodes come later. The first are nodes on which HAMi's device plugin is handing out
cards, because the pod would wait for it. The second are nodes that are nearly full while other
extenders place pods, because the room may be gone when the pod is bound.
"""

from typing import Final

import msgspec
import numpy as np

from extender.fit.feasible_nodes import FitResult
from extender.fit.fit_question import NO_BOUND
from extender.fit.inventory_fit import InventoryFit
from extender.fit.node_score_expression import Floats
from extender.inventory.assumed_placements import AssumedPlacements
from extender.inventory.card_arrays import Booleans
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.model.cards import HAMI, Phase
from ledger.kube.requests.device_requests import ContainerDeviceRequests

SPARE_TIMES: Final = (4, 2)
"""How many such pods a node should have room for while other extenders place pods, too."""


class LaterNodes:
    """Finds the nodes of one inventory that come after all others."""

    def __init__(self, fit: InventoryFit, assumed: AssumedPlacements) -> None:
        self._fit, self._assumed = fit, assumed

    def of(self, request: SchedulingRequest, fits: FitResult) -> Booleans:
        """Return which rows of a result come later for a pod."""
        later = self._handing_out(request, fits)
        if self._assumed.contested():
            later |= self._nearly_full(request, fits)
        return later

    def _handing_out(self, request: SchedulingRequest, fits: FitResult) -> Booleans:
        """Return the rows on which a pod would probably wait until another pod has its cards.

        That pod is placed there already, or assumed to be on its way there.
        """
        arrays, overlay = self._fit.inventory.arrays, self._fit.inventory.overlay
        taken: Booleans = arrays.waiting[fits.rows] > 0
        going_to = overlay.going_to(but=request.uid)
        if going_to:
            taken |= np.isin(fits.rows, list(going_to))
        for place in np.nonzero(taken)[0].tolist():
            taken[place] = arrays.keepers[fits.rows[place]] == HAMI
        return taken

    def _nearly_full(self, request: SchedulingRequest, fits: FitResult) -> Booleans:
        """Return the feasible rows without room for several such pods.

        While other extenders place pods, such a node may be full before the pod is bound. If no
        node has room for the larger number of `SPARE_TIMES`, the smaller number counts.
        """
        for times in SPARE_TIMES:
            tight = self._without_room_for(times, request, fits)
            if (fits.feasible & ~tight).any():
                return tight
        return np.zeros_like(fits.feasible)

    def _without_room_for(
        self, times: int, request: SchedulingRequest, fits: FitResult
    ) -> Booleans:
        """Return the feasible rows without room for this many such pods."""
        mask = fits.feasible.copy()
        several = msgspec.structs.replace(
            request.devices, containers=_several(request.devices.containers, times)
        )
        question = msgspec.structs.replace(
            self._fit.question(request, fits.rows[mask]), request=several, memory_room=NO_BOUND
        )
        mask[mask] = ~self._fit.answer(request, question).feasible
        return mask


def best_nodes(score: Floats, feasible: Booleans, later: Booleans) -> Booleans:
    """Return the feasible nodes with the highest score, later ones only if all are later.

    `later` may be shorter than `score`: the nodes behind its end do not come later. Without a
    highest score, because an expression gave NaN, all nodes of the group are returned.
    """
    first = feasible.copy()
    first[: len(later)] &= ~later
    group = first if first.any() else feasible
    if not group.any():
        return group
    best: Booleans = group & (score == score[group].max())
    return best if best.any() else group


def _several(
    containers: tuple[ContainerDeviceRequests, ...], times: int
) -> tuple[ContainerDeviceRequests, ...]:
    """Return the requests of this many pods that run at the same time."""
    beside = tuple(container for container in containers if container.phase != Phase.INIT)
    return containers + beside * (times - 1)
