"""The mutating webhook: a new pod that asks for cards gets what it left out.

That is so for pods of schedulers that place on cards. Other schedulers look for nodes that offer
every resource in the pod, and nodes with NVIDIA's own device plugin offer `nvidia.com/gpu` alone,
so pods of other schedulers stay as they are. Where pods wait for room instead of being refused, a
pod of any scheduler gets the gate behind which it waits.

The webhook never decides and never charges: whatever it does not understand passes untouched and is
refused, with a reason, by the validating webhook. What it writes is no proof of anything, and a pod
that it was not asked about is judged alike. Its patch is the same however often it is asked.
"""

import msgspec

from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Container, Pod
from ledger.kube.api.pod_gates import GATE, is_gated
from ledger.kube.requests.container_requests import cards_of, names_cards
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import demand_of
from webhook.api.admission_review import AdmissionRequest, AdmissionResponse, required_pod
from webhook.api.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext
from webhook.context.policies import NamespacePolicy


class PatchOperation(msgspec.Struct, frozen=True):
    """One step of a JSON patch; `add` sets what is there already."""

    path: str
    value: str | dict[str, str] | list[dict[str, str]]
    op: str = "add"


class MutatingWebhook:
    """Normalises pods on CREATE."""

    def __init__(
        self,
        cluster: str,
        rules: DemandRules,
        policy: AdmissionSettings,
        context: ClusterContext | None = None,
    ) -> None:
        """Complete pods of `cluster`, filling in the defaults of `rules`."""
        self._context = context or ClusterContext.none(cluster, rules)
        self._policy = policy

    async def answer(self, request: AdmissionRequest, until: float) -> AdmissionResponse:
        """Return the answer to a review, always "allowed", by loop time `until`.

        Raises BadReview.
        """
        if not request.is_pods() or request.sub_resource or request.operation != "CREATE":
            return AdmissionResponse(request.uid, True)
        treated = await self._context.policy_of(request.namespace, until)
        patch = self._patch(request, required_pod(request, "object"), treated)
        if not patch:
            return AdmissionResponse(request.uid, True)
        return AdmissionResponse(
            request.uid, True, patch_type="JSONPatch", patch=msgspec.json.encode(patch)
        )

    def _patch(
        self, request: AdmissionRequest, pod: Pod, treated: NamespacePolicy
    ) -> list[PatchOperation]:
        demand = demand_of(pod, self._context.rules)
        if isinstance(demand, Denial) or not demand.amounts or treated.mode == "off":
            return []
        patch: list[PatchOperation] = []
        if treated.on_exceeded == "pending" and not treated.may_exceed_limits(request.user_info):
            patch = _gated(pod)
        schedulers = self._policy.schedulers
        if pod.spec.node_name or not schedulers.place(pod):
            return patch
        asking = False
        for kind, containers in _containers(pod):
            for number, container in enumerate(containers):
                if names_cards(container, self._context.rules):
                    asking = True
                    place = f"/spec/{kind}/{number}/resources/limits"
                    patch += _completed(container, place, self._context.rules)
        scheduler = schedulers.of(pod)
        if asking and schedulers.given == scheduler != pod.spec.scheduler_name:
            patch.append(PatchOperation("/spec/schedulerName", scheduler))
        return patch


def _gated(pod: Pod) -> list[PatchOperation]:
    """Have a pod wait. One that names its node does not: the API server takes no gate then."""
    if pod.spec.node_name or is_gated(pod.spec):
        return []
    names = [*(gate.name for gate in pod.spec.scheduling_gates or ()), GATE]
    return [PatchOperation("/spec/schedulingGates", [{"name": name} for name in names])]


def _containers(pod: Pod) -> tuple[tuple[str, list[Container]], ...]:
    spec = pod.spec
    return ("initContainers", spec.init_containers or []), ("containers", spec.containers or [])


def _completed(container: Container, place: str, rules: DemandRules) -> list[PatchOperation]:
    """Write down the count and the cores that the demand function assumes.

    They go into the limits; the API server copies limits of extended resources to requests.
    """
    missing: dict[str, str] = {}
    for cards in cards_of(container, rules):
        vendor = cards.vendor
        if vendor.completed and not cards.count_given:
            missing[vendor.count] = str(cards.count)
        if vendor.completed and not cards.cores_given and cards.cores:
            missing[vendor.cores] = str(cards.cores)
    if not missing:
        return []
    if container.resources is None or container.resources.limits is None:
        return [PatchOperation(place, missing)]
    return [PatchOperation(f"{place}/{_pointer(name)}", text) for name, text in missing.items()]


def _pointer(name: str) -> str:
    """Return a name as one step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
