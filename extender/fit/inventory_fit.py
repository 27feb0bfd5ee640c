"""The inventory fit: the fit of pods on the nodes of an inventory and its overlay.

The use in the overlay counts against a pod, except for the pod's own assumed placement.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

import msgspec
import numpy as np

from extender.fit.failed_nodes import reason_of
from extender.fit.fit_nodes import FitResult, chosen_parts, fit
from extender.fit.fit_question import NO_BOUND, UNUSED_ONLY, FitQuestion
from extender.fit.node_score_expression import NodeScore
from extender.inventory.card_arrays import Booleans, Integers
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.simulated_nodes import simulated_inventory
from extender.inventory.usage_overlay import UsageOverlay
from extender.scheduler_api.extender_wire import NodeMeta
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.decide.object_headroom import most
from ledger.core.model.cards import HAMI, MIG, Parts, Phase
from ledger.core.model.denials import Reason
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_requests import (
    ContainerDeviceRequests,
    PodDeviceRequest,
    Weights,
)
from ledger.log.ledger import StateView

SPARE_TIMES: Final = (4, 2)
"""How many such pods a node should have room for while other extenders place pods, too."""

UNKNOWN: Final = -1
"""The row of a node without announced cards."""


class FitPreferences(msgspec.Struct, frozen=True):
    """The preferences for pods without their own; `node_score` goes before the node policy."""

    node_policy: str = "binpack"
    card_policies: tuple[str, ...] = ("spread",)
    weights: Weights = Weights()
    node_score: NodeScore | None = None


class QuotaHeadroom:
    """The memory that quotas leave to a pod, by the state of a view and the demand rules."""

    def __init__(self, view: StateView, rules: Callable[[], DemandRules]) -> None:
        """Read the view and the rules at each question."""
        self._view, self._rules = view, rules

    def of(self, request: SchedulingRequest, *, cut: bool) -> int:
        """Return how many MiB quotas allow a pod at most, `NO_BOUND` if they do not matter.

        They matter if the card decides the amount: for percentages of cards, and for all pods if
        cards are `cut`, because an instance may be larger than requested. A pod with cards of
        several vendors is not bounded here, because their memory is counted apart.
        """
        vendors = {card.vendor for one in request.devices.containers for card in one.cards}
        if len(vendors) != 1 or not (cut or _wants_parts(request.devices)):
            return NO_BOUND
        place = request.namespace, request.key, request.uid
        rooms = [
            most(self._view.state, *place, resource)
            for resource in self._memory(vendors.pop(), request.devices.types)
        ]
        return min((room for room in rooms if room is not None), default=NO_BOUND)

    def _memory(self, vendor: str, types: tuple[str, ...]) -> list[str]:
        """Return the resources as which memory of a vendor's cards of these types is charged."""
        rules = self._rules()
        memory = rules.by_name[vendor].memory
        return [memory, *(rules.typed[one][memory] for one in types)] if memory else []


class ChosenCards(NamedTuple):
    """The cards of a node for a pod; `unused_only` if the pod accepts no others."""

    parts: Parts
    unused_only: bool


class InventoryFit:
    """Fits pods on the nodes of an inventory."""

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

    def rows_of(self, names: Sequence[str]) -> Integers:
        """Return the row of each node, `UNKNOWN` for a node without announced cards."""
        rows = map(self.inventory.rows.get, names, repeat(UNKNOWN))
        return np.fromiter(rows, np.int64, len(names))

    def hands_out(self, name: str) -> bool:
        """Return whether a node hands out cards now and can do so for one pod at a time only."""
        row = self.inventory.rows.get(name)
        arrays = self.inventory.arrays
        return row is not None and arrays.keepers[row] == HAMI and bool(arrays.waiting[row])

    def rows_handing_out(self, request: SchedulingRequest, rows: Integers) -> Booleans:
        """Return the rows on which a pod would probably wait until another pod has its cards.

        That pod is placed there already, or assumed to be on its way there.
        """
        arrays, overlay = self.inventory.arrays, self.inventory.overlay
        taken: Booleans = arrays.waiting[rows] > 0
        going_to = overlay.going_to(but=request.uid)
        if going_to:
            taken |= np.isin(rows, list(going_to))
        for place in np.nonzero(taken)[0].tolist():
            taken[place] = arrays.keepers[rows[place]] == HAMI
        return taken

    def nearly_full(self, request: SchedulingRequest, fits: FitResult) -> Booleans:
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
        found = fits.feasible.copy()
        several = msgspec.structs.replace(
            request.devices, containers=_several(request.devices.containers, times)
        )
        question = msgspec.structs.replace(
            self.question(request, fits.rows[found]), request=several, memory_room=NO_BOUND
        )
        over = self.inventory.overlay
        with over.without(request.uid, self._clock()):
            found[found] = ~fit(self.inventory.arrays, over, question).feasible
        return found

    def of_simulated(self, nodes: Sequence[NodeMeta]) -> "InventoryFit":
        """Return the fit on simulated nodes, which are empty and have the cards they announce."""
        inventory = simulated_inventory(self.inventory.cluster, nodes)
        return InventoryFit(
            inventory, self._preferences, clock=self._clock, headroom=self._headroom
        )

    def fits(self, request: SchedulingRequest, rows: Integers) -> FitResult:
        """Return the feasibility, scores and reasons of these rows."""
        return self._answered(request, self.question(request, rows))

    def _answered(self, request: SchedulingRequest, question: FitQuestion) -> FitResult:
        over = self.inventory.overlay
        with over.without(request.uid, self._clock()):
            return fit(self.inventory.arrays, over, question)

    def choose_cards(self, request: SchedulingRequest, node: str) -> ChosenCards | str:
        """Return the best cards of one node for a pod, or why it does not fit there.

        Where only assumed placements are in the way they are ignored: the ledger decides.
        """
        row = self.inventory.rows.get(node)
        if row is None:
            return str(Reason.NODE_UNREGISTERED)
        question, arrays = self.question(request, np.array([row], np.int64)), self.inventory.arrays
        fits = self._answered(request, question)
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
            memory_room=self._room(request),
            node_score=None if devices.node_policy else preferences.node_score,
        )

    def _room(self, request: SchedulingRequest) -> int:
        if self._headroom is None:
            return NO_BOUND
        return self._headroom.of(request, cut=MIG in self.inventory.arrays.modes)


def _several(
    wishes: tuple[ContainerDeviceRequests, ...], times: int
) -> tuple[ContainerDeviceRequests, ...]:
    """Return the requests of this many pods that run at the same time."""
    beside = tuple(one for one in wishes if one.phase != Phase.INIT)
    return wishes + beside * (times - 1)


def _wants_parts(devices: PodDeviceRequest) -> bool:
    return any(card.percentage for one in devices.containers for card in one.cards)
