"""Card fit: tries the device requests of pods on the cards of an inventory."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from msgspec import structs

from extender.analysis import fit_report_cards, fit_suggestions
from extender.analysis.fit_suggestions import EvictedPod, FitSuggestion
from extender.fit.feasible_nodes import FitResult, chosen_parts, priorities
from extender.fit.inventory_fit import FitPreferences, InventoryFit
from extender.fit.node_failure_reasons import reasons_of
from extender.inventory.card_arrays import Booleans
from extender.inventory.cluster_inventory import ClusterInventory
from extender.scheduler_api.scheduling_request import SchedulingRequest, request_for
from gpuledger.manifest_fit.fit_report import (
    REASONS_MAX,
    CardPart,
    NodeFit,
    PodFit,
    ReasonCount,
    restricted,
)
from gpuledger.manifest_fit.manifest_pods import PodCardRequest
from ledger.core.model.cards import Parts
from ledger.kube.api.objects import Pod
from ledger.kube.requests.device_requests import PodDeviceRequest

EMPTIED_MAX: Final = 32
"""Most nodes, by name, on which pods for eviction are searched."""


class CardFit:
    """Tries pods on the cards of one cluster, which must not change meanwhile."""

    def __init__(
        self,
        inventory: ClusterInventory,
        preferences: FitPreferences,
        *,
        nodes_max: int | None = None,
        within: str = "",
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """Name at most `nodes_max` nodes of each pod.

        With `within`, the local name of a namespace, reports are restricted to it. `pause` is
        called between the steps, and may raise.
        """
        self._inventory, self._preferences = inventory, preferences
        self._nodes_max, self._within = 0 if within else nodes_max, within
        self._pause = pause
        self._fit = InventoryFit(inventory, preferences, clock=lambda: 0.0)
        self._names = sorted(inventory.rows)
        self._rows = np.array([inventory.rows[name] for name in self._names], np.int64)

    def fit(self, wanted: PodCardRequest) -> PodFit:
        """Return the fit of a pod. Raises what `pause` raises."""
        fit = self._fit_of_cards(wanted)
        return structs.replace(fit, fits=fit.fits and not wanted.claims, claims=wanted.claims)

    def _fit_of_cards(self, wanted: PodCardRequest) -> PodFit:
        """Return the fit of a pod without its resource claims."""
        if not wanted.devices.wants_cards():
            return PodFit(wanted.pod, True, [], [])
        # Explicit, so that a change can also be about a policy of the settings.
        policies = wanted.devices.card_policies or self._preferences.card_policies
        devices = structs.replace(wanted.devices, card_policies=policies)
        request = request_for(Pod(), devices, self._inventory.cluster)
        self._pause()
        fits = self._fit.fits(request, self._rows)
        nodes, counts = self._nodes(request, fits)
        fitting = int(fits.feasible.sum())
        changes = [] if fitting else list(self._suggestions(request, nodes))
        fit = PodFit(wanted.pod, fitting > 0, nodes, changes, fitting, len(self._names), counts)
        if self._within:
            fit = restricted(fit, self._within)
        return structs.replace(fit, nodes=fit.nodes[: self._nodes_max])

    def _nodes(
        self, request: SchedulingRequest, fits: FitResult
    ) -> tuple[list[NodeFit], list[ReasonCount]]:
        """Return the nodes, the best ones first, and the counts of reasons.

        Left out are nodes beyond `nodes_max` on which pods for eviction are not searched.
        """
        scores, reasons = priorities(fits).tolist(), reasons_of(fits)
        hopeful = [] if fits.feasible.any() else np.nonzero(fits.hopeful)[0][:EMPTIED_MAX].tolist()
        feasible, ranks = fits.feasible.tolist(), fits.score.tolist()
        order = sorted(
            range(len(self._names)),
            key=lambda place: (
                not feasible[place],
                -ranks[place] * feasible[place],
                self._names[place],
            ),
        )
        wanted = {*order[: self._nodes_max], *hopeful}
        nodes = [
            self._node(request, fits, place, scores[place], reasons[place], place in hopeful)
            for place in order
            if place in wanted
        ]
        counts = Counter(reason for reason in reasons if reason).most_common(REASONS_MAX)
        return nodes, [ReasonCount(reason, count) for reason, count in counts]

    def _node(
        self,
        request: SchedulingRequest,
        fits: FitResult,
        place: int,
        score: int,
        reason: str,
        is_hopeful: bool,
    ) -> NodeFit:
        self._pause()
        parts, name = self._parts(request, fits, place), self._names[place]
        return NodeFit(
            name,
            bool(parts),
            score,
            reason,
            list(_card_parts(parts)),
            fit_report_cards.verdicts(fits, place, self._inventory.arrays, request.devices, parts),
            self._evictions(request, name) if is_hopeful else [],
        )

    def _parts(self, request: SchedulingRequest, fits: FitResult, place: int) -> Parts:
        if not fits.feasible[place]:
            return ()
        return chosen_parts(fits, place, self._inventory.arrays, request.devices)

    def _evictions(self, request: SchedulingRequest, node: str) -> list[EvictedPod]:
        there = self._inventory.residents(node)
        if self._within:
            own = f"{self._inventory.cluster}/{self._within}"
            there = {place: placed for place, placed in there.items() if place[0] == own}
        return fit_suggestions.evictions_on(self._fit, request, node, there) if there else []

    def _suggestions(
        self, request: SchedulingRequest, nodes: list[NodeFit]
    ) -> Iterator[FitSuggestion]:
        eviction = fit_suggestions.fewest_evictions({node.node: node.evict for node in nodes})
        if eviction is not None:
            yield eviction

        def fitting(devices: PodDeviceRequest) -> Booleans:
            self._pause()
            return self._fit.fits(structs.replace(request, devices=devices), self._rows).feasible

        yield from fit_suggestions.single_changes(request.devices, fitting, self._names)


def _card_parts(parts: Parts) -> Iterator[CardPart]:
    for part in parts:
        for share in part.shares:
            yield CardPart(part.container, share.uuid, share.memory, share.cores)
