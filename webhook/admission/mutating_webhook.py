"""The mutating webhook: a new pod that asks for cards gets what it left out.

That is so for pods of schedulers that place on cards. Other schedulers look for nodes that offer
every resource in the pod, and nodes with NVIDIA's own device plugin offer `nvidia.com/gpu` alone,
so pods of other schedulers stay as they are. Where pods wait for room instead of being refused, a
pod of any scheduler gets the gate behind which it waits.

The webhook never decides and never charges: a pod that it cannot read passes untouched and is
refused, with a reason, by the validating webhook. Its patch is not a proof of anything, and a pod
that it has not seen is decided in the same way. Its patch is the same however often it is asked.
"""

from typing import Final

import msgspec

from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Pod
from ledger.kube.api.pod_gates import GATE, is_gated
from ledger.kube.requests.container_demand import cards_of, names_cards
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import demand_of
from webhook.api.admission_review import (
    AdmissionResponse,
    AnsweredAdmissionReview,
    decode,
    required_pod,
)
from webhook.api.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext

_POINTER: Final = str.maketrans({"~": "~0", "/": "~1"})
"""Escapes of characters of a name in a step of a JSON pointer."""


class PatchOperation(msgspec.Struct, frozen=True):
    """One step of a JSON patch; `add` sets what is there already."""

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
        pod = required_pod(request, "object")
        policy = await self._context.policies.policy_of(request.namespace, until)
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


def _gated(pod: Pod) -> list[PatchOperation]:
    """Return the gate for a pod that is to wait; the API server accepts none with a node name."""
    if pod.spec.node_name or is_gated(pod.spec):
        return []
    names = [*(gate.name for gate in pod.spec.scheduling_gates or ()), GATE]
    return [PatchOperation("/spec/schedulingGates", [{"name": name} for name in names])]


def _completed(pod: Pod, rules: DemandRules, scheduler: str) -> list[PatchOperation]:
    """Write down the count and the cores that the demand function assumes, and the scheduler.

    They go into the limits; the API server copies limits of extended resources to requests. The
    scheduler is written where a container asks for cards, unless it is empty.
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
