"""Mutating webhook: completes new pods that request cards, and gates pods that wait for quota.

It writes omitted counts, cores and the scheduler into pods whose scheduler places on cards. Pods of
other schedulers stay unchanged: such a scheduler looks for nodes that offer every resource of the
pod, and nodes with NVIDIA's own device plugin offer only `nvidia.com/gpu`. Where a policy lets pods
wait instead of refusing them, a pod of any scheduler gets the scheduling gate.

The webhook never decides and never charges. A pod that it cannot read stays unchanged, and the
validating webhook refuses it with a reason. No decision depends on the patch: a pod without the
patch is decided in the same way. Repeated calls return the same patch.
"""

from typing import Final

import msgspec

from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod
from ledger.kube.api.pod_gates import GATE, is_gated
from ledger.kube.requests.container_demand import cards_of, names_cards
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import demand_of
from webhook.admission.claim_checks import placed_pod
from webhook.api.admission_review import (
    AdmissionRequest,
    AdmissionResponse,
    AnsweredAdmissionReview,
    decode,
    required_pod,
)
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext
from webhook.context.namespace_policies import NamespacePolicy

_POINTER: Final = str.maketrans({"~": "~0", "/": "~1"})
"""Escapes of characters of a name in a step of a JSON pointer."""


class PatchOperation(msgspec.Struct, frozen=True):
    """One step of a JSON patch; `add` replaces an existing value."""

    path: str
    value: str | dict[str, str] | list[dict[str, str]]
    op: str = "add"


class MutatingWebhook:
    """Completes pods on CREATE."""

    def __init__(self, settings: AdmissionSettings, context: ClusterContext) -> None:
        self._settings = settings
        self._context = context

    async def answer(self, body: bytes, until: float) -> AnsweredAdmissionReview:
        """Return the answer to a review, always "allowed", by loop time `until`.

        Raises BadReview.
        """
        request = decode(body)
        untouched = AnsweredAdmissionReview(response=AdmissionResponse(request.uid, True))
        if not request.is_pods or request.sub_resource or request.operation != "CREATE":
            return untouched
        pod = placed_pod(required_pod(request, "object"), request)
        policy = await self._context.policies.policy_of(request.namespace, until)
        await self._read_templates(request, pod, policy, until)
        rules = self._context.rules
        demand = demand_of(pod, rules)
        if isinstance(demand, Denial) or not demand.amounts or policy.mode == "off":
            return untouched
        patch: list[PatchOperation] = []
        if policy.on_exceeded == "pending" and not policy.may_exceed_limits(request.user_info):
            patch = _gated(pod)
        schedulers = self._settings.schedulers
        if not pod.spec.node_name and schedulers.place(pod):
            scheduler = schedulers.of(pod)
            is_given = schedulers.given == scheduler != pod.spec.scheduler_name
            patch += _completed(pod, rules, scheduler if is_given else "")
        if not patch:
            return untouched
        steps = msgspec.json.encode(patch)
        return AnsweredAdmissionReview(
            response=AdmissionResponse(request.uid, True, patch_type="JSONPatch", patch=steps)
        )

    async def _read_templates(
        self, request: AdmissionRequest, pod: Pod, policy: NamespacePolicy, until: float
    ) -> None:
        """Read the templates of a pod that may have to wait for quota.

        If they cannot be read, the pod is not gated for them, and the validating webhook refuses
        it.
        """
        claims = pod.spec.resource_claims
        if not claims or policy.on_exceeded != "pending":
            return
        names = [claim.resource_claim_template_name for claim in claims]
        namespace = request.namespace or pod.metadata.namespace
        await self._context.resource_claims.prepare(namespace, list(filter(None, names)), until)


def _gated(pod: Pod) -> list[PatchOperation]:
    """Return the patch that gates a pod; a pod with a node name cannot have a gate."""
    if pod.spec.node_name or is_gated(pod.spec):
        return []
    names = [*(gate.name for gate in pod.spec.scheduling_gates or ()), GATE]
    return [PatchOperation("/spec/schedulingGates", [{"name": name} for name in names])]


def _completed(pod: Pod, rules: DemandRules, scheduler: str) -> list[PatchOperation]:
    """Return the patch with the counts and cores that the demand function assumes.

    They are written to the limits, because the API server copies limits of extended resources to
    the requests. Unless `scheduler` is empty, it is written into pods that request cards.
    """
    patch: list[PatchOperation] = []
    is_asking = False
    spec = pod.spec
    fields = ("initContainers", spec.init_containers), ("containers", spec.containers)
    for field, containers in fields:
        for number, container in enumerate(containers or ()):
            is_asking = is_asking or names_cards(container, rules)
            missing: dict[str, str] = {}
            for cards in cards_of(container, rules):
                vendor = cards.vendor
                if vendor.completed and not cards.count_given:
                    missing[vendor.count] = str(cards.count)
                if vendor.completed and not cards.cores_given and cards.cores:
                    missing[vendor.cores] = str(cards.cores)
            limits = f"/spec/{field}/{number}/resources/limits"
            if missing and (container.resources is None or container.resources.limits is None):
                patch.append(PatchOperation(limits, missing))
                continue
            for name, text in missing.items():
                patch.append(PatchOperation(f"{limits}/{name.translate(_POINTER)}", text))
    if is_asking and scheduler:
        patch.append(PatchOperation("/spec/schedulerName", scheduler))
    return patch
