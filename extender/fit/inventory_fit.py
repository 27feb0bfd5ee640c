"""Selecting: the one algorithm of fitting, asked about all nodes or about one.

What is probably taken, the overlay, counts against a pod; of what is guessed about the pod itself
nothing does.
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
from extender.inventory.arrays import Booleans, Integers
from extender.inventory.inventory import ClusterInventory
from extender.inventory.overlay import Overlay
from extender.inventory.simulated_nodes import simulated_inventory
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
"""How many pods like it there should be room for on a node while others place pods, too."""

UNKNOWN: Final = -1
"""The row of a node that announced no cards."""


class FitPreferences(msgspec.Struct, frozen=True):
    """What counts for pods that say nothing else; `node_score` goes before the node policy."""

    node_policy: str = "binpack"
    card_policies: tuple[str, ...] = ("spread",)
    weights: Weights = Weights()
    node_score: NodeScore | None = None


class QuotaHeadroom:
    """Works out rooms from the state that a view shows, and what is charged for by the rules."""

    def __init__(self, view: StateView, rules: Callable[[], DemandRules]) -> None:
        """Look at the view and the rules at each question."""
        self._view, self._rules = view, rules

    def of(self, request: SchedulingRequest, *, cut: bool) -> int:
        """Return how many MiB quotas allow a pod at most, `NO_BOUND` where they do not matter.

        They do where cards decide: for parts of cards, and for all pods where cards are `cut`,
        since an instance may be larger than what was asked for. A pod with cards of several vendors
        is not bounded here: their memory is counted apart.
        """
        vendors = {card.vendor for one in request.devices.wishes for card in one.cards}
        if len(vendors) != 1 or not (cut or _wants_parts(request.devices)):
            return NO_BOUND
        place = request.namespace, request.key, request.uid
        rooms = [
            most(self._view.state, *place, resource)
            for resource in self._memory(vendors.pop(), request.devices.types)
        ]
        return min((room for room in rooms if room is not None), default=NO_BOUND)

    def _memory(self, vendor: str, types: tuple[str, ...]) -> list[str]:
        """Return the resources that memory of a vendor's cards of these types is charged as."""
        rules = self._rules()
        memory = rules.by_name[vendor].memory
        return [memory, *(rules.typed[one][memory] for one in types)] if memory else []


class ChosenCards(NamedTuple):
    """The cards of a node for a pod; `unused_only` if the pod accepts no others."""

    parts: Parts
    unused_only: bool


class InventoryFit:
    """Selects nodes and cards from an inventory and what lies over it."""

    def __init__(
        self,
        inventory: ClusterInventory,
        preferences: FitPreferences,
        *,
        clock: Callable[[], float],
        headroom: QuotaHeadroom | None = None,
    ) -> None:
        """Prefer what the settings say; `clock` is the time of the loop in seconds.

        Without `headroom`, quotas are ignored.
        """
        self.inventory = inventory
        self._preferences = preferences
        self._clock = clock
        self._headroom = headroom

    def rows_of(self, names: Sequence[str]) -> Integers:
        """Return the row of each node, `UNKNOWN` for one that announced no cards."""
        rows = map(self.inventory.rows.get, names, repeat(UNKNOWN))
        return np.fromiter(rows, np.int64, len(names))

    def hands_out(self, name: str) -> bool:
        """Return whether a node is handing out cards and can do so for one pod at a time only."""
        row = self.inventory.rows.get(name)
        arrays = self.inventory.arrays
        return row is not None and arrays.keepers[row] == HAMI and bool(arrays.waiting[row])

    def rows_handing_out(self, request: SchedulingRequest, rows: Integers) -> Booleans:
        """Return on which of these rows a pod would have to wait for another to get its cards.

        Or probably would: another one may be on its way there.
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
        """Return on which rows a pod fits that have no room for several like it.

        While others place pods, too, such a node is lost in the moment until the pod is bound.
        Where no node has room for so many, fewer will do.
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
            request.devices, wishes=_several(request.devices.wishes, times)
        )
        question = msgspec.structs.replace(
            self.question(request, fits.rows[found]), request=several, memory_room=NO_BOUND
        )
        over = self.inventory.overlay
        with over.without(request.uid, self._clock()):
            found[found] = ~fit(self.inventory.arrays, over, question).feasible
        return found

    def of_simulated(self, nodes: Sequence[NodeMeta]) -> "InventoryFit":
        """Return a selection among nodes that are empty and have what they announce themselves."""
        inventory = simulated_inventory(self.inventory.cluster, nodes)
        return InventoryFit(
            inventory, self._preferences, clock=self._clock, headroom=self._headroom
        )

    def fits(self, request: SchedulingRequest, rows: Integers) -> FitResult:
        """Return which of these rows a pod fits on, how well, and why not."""
        return self._answered(request, self.question(request, rows))

    def _answered(self, request: SchedulingRequest, question: FitQuestion) -> FitResult:
        over = self.inventory.overlay
        with over.without(request.uid, self._clock()):
            return fit(self.inventory.arrays, over, question)

    def choose_cards(self, request: SchedulingRequest, node: str) -> ChosenCards | str:
        """Return the cards of one node that a pod should have, or why it fits there on none.

        Where only assumed placements are in the way they are ignored: the ledger decides.
        """
        row = self.inventory.rows.get(node)
        if row is None:
            return str(Reason.NODE_UNREGISTERED)
        question, arrays = self.question(request, np.array([row], np.int64)), self.inventory.arrays
        fits = self._answered(request, question)
        if not fits.feasible[0]:
            fits = fit(arrays, Overlay(arrays.rows, arrays.columns), question)
        if not fits.feasible[0]:
            return reason_of(fits, 0)
        parts = chosen_parts(fits, 0, arrays, request.devices)
        return ChosenCards(parts, UNUSED_ONLY in question.card_policies)

    def question(self, request: SchedulingRequest, rows: Integers) -> FitQuestion:
        """Return what fitting is asked: what the pod says, and the settings where it does not."""
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
    """Return what so many pods want that run beside one another."""
    beside = tuple(one for one in wishes if one.phase != Phase.INIT)
    return wishes + beside * (times - 1)


def _wants_parts(devices: PodDeviceRequest) -> bool:
    return any(card.percentage for one in devices.wishes for card in one.cards)
