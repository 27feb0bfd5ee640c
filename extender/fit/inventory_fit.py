"""Inventory fit: the fit of a pod on nodes as they are now, and the choice of cards at the bind.

The policies of the pod go before those of the settings. The ledger's use of a card counts against a
pod, and so does the use that the ledger does not record yet, except for the pod's own.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

import msgspec
import numpy as np

from extender.fit.feasible_nodes import FitResult, chosen_parts, fit
from extender.fit.fit_question import NO_BOUND, UNUSED_ONLY, FitQuestion
from extender.fit.node_failure_reasons import reason_of
from extender.fit.node_score_expression import NodeScore
from extender.fit.quota_headroom import QuotaHeadroom
from extender.fit.repeated_fits import ROWS_LEAST, RepeatedFits
from extender.inventory.card_arrays import Integers
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.simulated_nodes import simulated_inventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.scheduler_api.extender_wire import NodeMeta
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.model.cards import HAMI, MIG, Parts
from ledger.core.model.denials import Reason
from ledger.kube.requests.device_requests import (
    PodDeviceRequest,
    Weights,
)

UNKNOWN: Final = -1
"""The row of a node without announced cards."""


class FitPreferences(msgspec.Struct, frozen=True):
    """The preferences for pods without their own; `node_score` goes before the node policy."""

    node_policy: str = "binpack"
    card_policies: tuple[str, ...] = ("spread",)
    weights: Weights = Weights()
    node_score: NodeScore | None = None


class ChosenCards(NamedTuple):
    """The cards of a node for a pod; `unused_only` if the pod accepts no others."""

    parts: Parts
    unused_only: bool


class InventoryFit:
    """Fits the pods of one cluster on the nodes of its inventory."""

    def __init__(
        self,
        inventory: ClusterInventory,
        preferences: FitPreferences,
        *,
        clock: Callable[[], float],
        headroom: QuotaHeadroom | None = None,
    ) -> None:
        """`clock` is the time of the loop in seconds.

        Without `headroom`, quotas are ignored.
        """
        self.inventory = inventory
        self._preferences = preferences
        self._clock = clock
        self._headroom = headroom
        self._repeated = RepeatedFits()

    def rows_of(self, names: Sequence[str]) -> Integers:
        """Return the row of each node, `UNKNOWN` for a node without announced cards."""
        rows = map(self.inventory.rows.get, names, repeat(UNKNOWN))
        return np.fromiter(rows, np.int64, len(names))

    def hands_out(self, name: str) -> bool:
        """Return whether a node hands out cards now and can do so for one pod at a time only."""
        row = self.inventory.rows.get(name)
        arrays = self.inventory.arrays
        return row is not None and arrays.keepers[row] == HAMI and bool(arrays.waiting[row])

    def of_simulated(self, nodes: Sequence[NodeMeta]) -> "InventoryFit":
        """Return the fit on simulated nodes, which are empty and have the cards they announce."""
        inventory = simulated_inventory(self.inventory.cluster, nodes)
        return InventoryFit(
            inventory, self._preferences, clock=self._clock, headroom=self._headroom
        )

    def fits(self, request: SchedulingRequest, rows: Integers) -> FitResult:
        """Return the feasibility, scores and reasons of these rows."""
        return self.answer(request, self.question(request, rows))

    def answer(self, request: SchedulingRequest, question: FitQuestion) -> FitResult:
        """Answer a question about a pod, whose own assumed placement does not count."""
        over = self.inventory.overlay
        with over.without(request.uid, self._clock()):
            if len(question.rows) < ROWS_LEAST:
                return fit(self.inventory.arrays, over, question)
            return self._repeated.fit(self.inventory.arrays, over, question)

    def choose_cards(self, request: SchedulingRequest, node: str) -> ChosenCards | str:
        """Return the best cards of one node for a pod, or why it does not fit there.

        If only assumed placements are in the way, they are ignored, because the ledger decides.
        """
        row = self.inventory.rows.get(node)
        if row is None:
            return str(Reason.NODE_UNREGISTERED)
        question, arrays = self.question(request, np.array([row], np.int64)), self.inventory.arrays
        fits = self.answer(request, question)
        if not fits.feasible[0]:
            fits = fit(arrays, UsageOverlay(arrays.rows, arrays.columns), question)
        if not fits.feasible[0]:
            return reason_of(fits, 0)
        parts = chosen_parts(fits, 0, arrays, request.devices)
        return ChosenCards(parts, UNUSED_ONLY in question.card_policies)

    def question(self, request: SchedulingRequest, rows: Integers) -> FitQuestion:
        """Return the question about a pod, with the settings where the pod has no preference."""
        preferences, devices = self._preferences, request.devices
        return FitQuestion(
            request=devices,
            rows=rows,
            node_policy=devices.node_policy or preferences.node_policy,
            card_policies=devices.card_policies or preferences.card_policies,
            weights=devices.weights or preferences.weights,
            memory_room=self._memory_room(request),
            node_score=None if devices.node_policy else preferences.node_score,
        )

    def _memory_room(self, request: SchedulingRequest) -> int:
        """Return how many MiB quotas allow a pod at most, `NO_BOUND` if they do not matter.

        They matter if the card decides the amount: for percentages of cards, and for all pods if
        cards are cut, because an instance may be larger than requested.
        """
        is_cut = MIG in self.inventory.arrays.modes
        if self._headroom is None or not (is_cut or _wants_parts(request.devices)):
            return NO_BOUND
        return self._headroom.of(request)


def _wants_parts(devices: PodDeviceRequest) -> bool:
    return any(card.percentage for container in devices.containers for card in container.cards)
