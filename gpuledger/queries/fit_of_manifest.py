"""Fit of a manifest: the nodes on which its pods fit, and the reasons for the other nodes.

It is the extender's choice on the cards of the log at a moment, with the service's settings, and
the validating webhook's decision for the quotas.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
from msgspec import structs

from extender.analysis import fit_report_cards, fit_suggestions
from extender.analysis.fit_report_cards import CardVerdict
from extender.analysis.fit_suggestions import EvictedPod, FitSuggestion
from extender.fit.feasible_nodes import FitResult, chosen_parts, priorities
from extender.fit.inventory_fit import FitPreferences, InventoryFit
from extender.fit.node_failure_reasons import reasons_of
from extender.inventory.card_arrays import Booleans
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.scheduler_api.scheduling_request import SchedulingRequest, request_for
from gpuledger.cli import manifest_input
from gpuledger.cli.exit_codes import CommandError, Exit, denied_error
from gpuledger.queries.explanation_of_manifest import explain_to
from gpuledger.storage.past_ledger import PastLedger, ledger_at
from gpuledger.wiring.admission_from_settings import cluster_context
from gpuledger.wiring.extender_from_settings import extender_settings
from ledger.core.model.cards import Parts
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.kube.api.objects import Pod, Workload
from ledger.kube.hami import annotation_keys
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_request_parser import device_request_of
from ledger.kube.requests.device_requests import PodDeviceRequest
from ledger.runtime.settings.settings import Settings
from webhook.admission.explanation import NAMESPACE
from webhook.api.admission_review import UNDECODABLE, BadReview, bad_review
from webhook.kinds.kind_catalog import KindCatalog
from webhook.kinds.object_values import InvalidObject
from webhook.kinds.pod_templates import templates_of

EMPTIED_MAX: Final = 32
"""Most nodes, by name, on which pods for eviction are searched."""


class CardPart(msgspec.Struct, frozen=True):
    """A card that a container would have: MiB and percent of it."""

    container: str
    uuid: str
    memory: int
    cores: int


class NodeFit(msgspec.Struct, frozen=True):
    """Whether the pod fits on a node, with the score sent to the scheduler, 0 to 10.

    `taken` are the cards that it would have. `reason` is the reason why it does not fit, and
    `evict` are pods whose eviction would help, if that was searched.
    """

    node: str
    fits: bool
    score: int
    reason: str
    taken: list[CardPart]
    cards: list[CardVerdict]
    evict: list[EvictedPod]


class PodFit(msgspec.Struct, frozen=True):
    """A pod of the manifest: its name or the field of its template, its nodes, and changes that
    would help.
    """

    pod: str
    fits: bool
    nodes: list[NodeFit]
    changes: list[FitSuggestion]


class FitReport(msgspec.Struct, frozen=True):
    """The fit of a manifest's pods at a position of the log.

    `allowed` is the decision of the validating webhook, `answer` its message.
    """

    position: int
    namespace: str
    fits: bool
    allowed: bool
    answer: str
    pods: list[PodFit]


class _Manifest(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str


async def fit(settings: Settings, file: str, namespace: str | None, at: str) -> FitReport:
    """Fit the pods of a file. Raises CommandError, and what finding and reading the log raises."""
    body = manifest_input.read(file, settings.review_bytes_max)
    recalled = await ledger_at(settings, at)
    try:
        return await fit_body(settings, recalled, body, namespace)
    except BadReview as error:
        raise CommandError(
            Exit.USAGE, f"{manifest_input.name_of(file)}: {error.field}: {error.message}"
        ) from error


async def fit_body(
    settings: Settings, recalled: PastLedger, body: bytes, namespace: str | None
) -> FitReport:
    """Fit the pods of a manifest in JSON at a moment. Raises BadReview, CommandError."""
    preferences = extender_settings(settings).preferences
    context = cluster_context(settings, recalled)
    explained = await explain_to(settings, recalled, context, body, namespace)
    where = explained.namespace.rpartition("/")[2] or namespace or NAMESPACE
    pods = list(_pods(body, where, context.catalog))
    trial = _FitTrial(settings.cluster, recalled, preferences=preferences)
    pod_fits = [trial.fit(name, pod, context.rules) for name, pod in pods]
    return FitReport(
        recalled.state.position,
        where,
        all(pod_fit.fits for pod_fit in pod_fits),
        explained.allowed,
        explained.answer,
        pod_fits,
    )


def _pods(body: bytes, namespace: str, catalog: KindCatalog) -> Iterator[tuple[str, Pod]]:
    """Yield the pods of a manifest, with a name for each. Raises BadReview, CommandError."""
    try:
        manifest = msgspec.json.decode(body, type=_Manifest)
        if manifest.kind == "Pod":
            pod = msgspec.json.decode(body, type=Pod)
            yield pod.metadata.name or pod.metadata.generate_name, _within(pod, namespace)
            return
        workload = msgspec.json.decode(body, type=Workload)
    except UNDECODABLE as error:
        raise bad_review(error, "$") from error
    kind = catalog.of_owner(manifest.api_version, manifest.kind)
    if kind is None:
        raise BadReview(
            "$.kind", f"{manifest.kind[:64]!r} creates no pods: give an object that creates pods"
        )
    try:
        for template in templates_of(kind, workload):
            yield template.field, _within(template.pod, namespace)
    except InvalidObject as error:
        raise denied_error(error.denial) from error


def _within(pod: Pod, namespace: str) -> Pod:
    return structs.replace(pod, metadata=structs.replace(pod.metadata, namespace=namespace))


class _FitTrial:
    """Tries pods on the cards of a cluster in the log."""

    def __init__(self, cluster: str, recalled: PastLedger, *, preferences: FitPreferences) -> None:
        self._cluster, self._state, self._preferences = cluster, recalled.state, preferences
        self._inventory = ClusterInventory(cluster, UsageOverlay())
        self._inventory.load(recalled.state)
        self._fit = InventoryFit(self._inventory, preferences, clock=lambda: 0.0)
        self._names = sorted(self._inventory.rows)
        rows = [self._inventory.rows[name] for name in self._names]
        self._rows = np.array(rows, np.int64)

    def fit(self, name: str, pod: Pod, rules: DemandRules) -> PodFit:
        """Return the fit of a pod. Raises CommandError for an invalid request."""
        devices = device_request_of(pod, rules)
        if isinstance(devices, Denial):
            raise denied_error(devices)
        devices = devices.among(annotation_keys.VENDOR_ANNOTATIONS)
        if not devices.wants_cards():
            return PodFit(name, True, [], [])
        # Explicit, so that a change can also be about a policy of the settings.
        policies = devices.card_policies or self._preferences.card_policies
        devices = structs.replace(devices, card_policies=policies)
        request = request_for(pod, devices, self._cluster)
        fits = self._fit.fits(request, self._rows)
        nodes = self._nodes(request, fits)
        if fits.feasible.any():
            return PodFit(name, True, nodes, [])
        return PodFit(name, False, nodes, list(self._suggestions(request, nodes)))

    def _nodes(self, request: SchedulingRequest, fits: FitResult) -> list[NodeFit]:
        """Return all nodes, the best ones first."""
        scores, reasons = priorities(fits).tolist(), reasons_of(fits)
        hopeful = [] if fits.feasible.any() else np.nonzero(fits.hopeful)[0][:EMPTIED_MAX].tolist()
        nodes = []
        for place, name in enumerate(self._names):
            parts = self._parts(request, fits, place)
            nodes.append(
                NodeFit(
                    name,
                    bool(parts),
                    scores[place],
                    reasons[place],
                    list(_card_parts(parts)),
                    fit_report_cards.verdicts(
                        fits, place, self._inventory.arrays, request.devices, parts
                    ),
                    self._evictions(request, name) if place in hopeful else [],
                )
            )
        scored = dict(zip(self._names, fits.score.tolist(), strict=True))
        return sorted(
            nodes, key=lambda node: (not node.fits, -scored[node.node] * node.fits, node.node)
        )

    def _parts(self, request: SchedulingRequest, fits: FitResult, place: int) -> Parts:
        if not fits.feasible[place]:
            return ()
        return chosen_parts(fits, place, self._inventory.arrays, request.devices)

    def _evictions(self, request: SchedulingRequest, node: str) -> list[EvictedPod]:
        there = _residents(self._state, f"{self._cluster}/{node}")
        return fit_suggestions.evictions_on(self._fit, request, node, there)

    def _suggestions(
        self, request: SchedulingRequest, nodes: list[NodeFit]
    ) -> Iterator[FitSuggestion]:
        eviction = fit_suggestions.fewest_evictions({node.node: node.evict for node in nodes})
        if eviction is not None:
            yield eviction

        def fitting(devices: PodDeviceRequest) -> Booleans:
            return self._fit.fits(structs.replace(request, devices=devices), self._rows).feasible

        yield from fit_suggestions.single_changes(request.devices, fitting, self._names)


def _card_parts(parts: Parts) -> Iterator[CardPart]:
    for part in parts:
        for share in part.shares:
            yield CardPart(part.container, share.uuid, share.memory, share.cores)


def _residents(state: State, node: str) -> fit_suggestions.Residents:
    return {
        (namespace, key): state.namespaces[namespace].placed[key]
        for namespace, key in state.residents[node]
    }
