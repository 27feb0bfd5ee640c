"""The validating webhook: the place where pods and workloads are charged.

Here, and only here, the uid and the name of a new object are the ones that will be persisted. An
answer "allowed" is given after the reservation is durable, and before the deadline: a ledger that
does not answer in time is an unavailable ledger.

Pods, objects of every known kind and their scales are judged when they are created or updated;
definitions of limits are looked over, and refused where an amount makes no sense. Whatever can
write annotations of a pod, Bindings and statuses too, is checked for annotations of allocations, in
every mode. Of ephemeral containers only privileged ones are judged. Everything else (DELETE,
eviction, other kinds) passes untouched.
"""

from collections.abc import Collection
from typing import Final

import msgspec
import structlog

from ledger.core.model.denials import Denial, Reason, brief
from ledger.kube.requests.container_requests import shown
from ledger.kube.requests.demand_rules import DemandRules
from ledger.log.ledger import Ledger
from webhook.admission import protected_annotations
from webhook.admission.attempts import Attempts
from webhook.admission.objects import quota_lint
from webhook.admission.objects.pod_admission import PodAdmission
from webhook.admission.objects.scale_admission import ScaleAdmission
from webhook.admission.objects.workload_admission import WorkloadAdmission, WorkloadWrite
from webhook.admission.reservation import ReservationClient
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.api.admission_review import (
    AdmissionRequest,
    AdmissionResponse,
    audit,
    denied,
    required_pod,
    required_workload,
    warning,
)
from webhook.api.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext
from webhook.context.policies import NamespacePolicy
from webhook.kinds.schema import WorkloadKind

_WRITES: Final = ("CREATE", "UPDATE")

EPHEMERAL: Final = "ephemeralcontainers"
"""The subresource of pods by which debugging containers are added."""

_STRICT: Final = frozenset((Reason.RESERVED_ANNOTATION, Reason.FORGED_OWNER))
"""Reasons that hold whatever the mode: they guard what is recorded, not how much there is."""

_log: Final = structlog.get_logger("webhook")


class ValidatingWebhook:
    """Judges what is created and updated."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: str,
        rules: DemandRules,
        policy: AdmissionSettings,
        context: ClusterContext | None = None,
    ) -> None:
        """Judge for `cluster`. Without a context, pods alone are judged, each by itself."""
        self._context = context or ClusterContext.none(cluster, rules)
        self._universe_authority = policy.universe_authority
        self._trusted_identities = policy.trusted
        reservations = ReservationClient(ledger, policy, self._context)
        attempts = Attempts(cluster, policy.owner_holds_max, policy.recorded)
        self._pods = PodAdmission(reservations, attempts, policy, self._context)
        self._workloads = WorkloadAdmission(reservations, attempts, policy, self._context)
        self._scales = ScaleAdmission(self._workloads, self._context)

    @property
    def context(self) -> ClusterContext:
        """What is known of everything around a request."""
        return self._context

    async def answer(self, request: AdmissionRequest, until: float) -> AdmissionResponse:
        """Return the answer to a review, by loop time `until`. Raises BadReview."""
        verdict = await self.decide(request, until)
        if verdict.denial is not None:
            return denied(request, verdict.denial, verdict.warnings)
        if verdict is UNTOUCHED:
            return AdmissionResponse(request.uid, True)
        warnings = tuple(map(warning, verdict.warnings))
        annotations = audit(verdict.decision, verdict.outcome)
        return AdmissionResponse(
            request.uid, True, warnings=warnings, audit_annotations=annotations
        )

    async def decide(self, request: AdmissionRequest, until: float) -> Verdict:
        """Decide a request; a dry run is decided like the real thing and changes nothing.

        Raises BadReview.
        """
        if protected_annotations.is_checked(request):
            field = protected_annotations.forbidden_field(request, self._trusted())
            if field:
                return Verdict(await self._refusal(request, field, until))
        kind = self._context.catalog.of_resource(request.resource.group, request.resource.resource)
        if _is_judged(request, kind):
            return await self._judge(request, kind, until)
        if _is_definition(request):
            return await self._judge_definition(request, until)
        _log.debug(
            "review passed untouched",
            operation=shown(request.operation),
            resource=shown(request.resource.resource),
            subresource=shown(request.sub_resource),
        )
        return UNTOUCHED

    async def _judge_definition(self, request: AdmissionRequest, until: float) -> Verdict:
        """Decide about limits; where limits refuse nothing, senseless ones are not refused."""
        verdict = quota_lint.lint_quota(
            request,
            request.resource.name,
            self._context.rules,
            universe_authority=self._universe_authority,
        )
        if verdict.denial is None or not request.namespace:
            return verdict
        policy = await self._context.policy_of(request.namespace, until)
        return verdict if policy.mode == "enforce" else _softened(verdict)

    def _trusted(self) -> Collection[str]:
        """Return who may write annotations of allocations: the named users and the service."""
        own = self._context.identity
        return (*self._trusted_identities, own) if own else self._trusted_identities

    async def _refusal(self, request: AdmissionRequest, field: str, until: float) -> Denial:
        """Return why a reserved field may not be written; note who resembles a HAMi."""
        user = request.user_info.username
        allocators = self._context.refused_hami_accounts
        resembles = protected_annotations.resembles_hami(request, field)
        may = resembles and await allocators.note(user, self._context.until(until))
        return protected_annotations.protected_field_denial(field, shown(user), may_allocate=may)

    async def _judge(
        self, request: AdmissionRequest, kind: WorkloadKind | None, until: float
    ) -> Verdict:
        """Decide about an object of a namespace; without a kind it is a pod."""
        policy = await self._context.policy_of(request.namespace, until)
        if policy.mode == "off":
            return UNTOUCHED
        if kind is None:
            verdict = await self._judge_pod(request, policy, until)
        elif request.sub_resource:
            verdict = await self._scales.decide(request, kind, policy, until)
        else:
            verdict = await self._judge_workload(request, kind, policy, until)
        return _softened(verdict) if policy.mode == "warn" else verdict

    async def _judge_pod(
        self, request: AdmissionRequest, policy: NamespacePolicy, until: float
    ) -> Verdict:
        pod = required_pod(request, "object")
        old = required_pod(request, "oldObject") if request.operation == "UPDATE" else None
        if old is not None and request.sub_resource == EPHEMERAL:
            return self._pods.decide_ephemeral(pod, old)
        return await self._pods.decide(request, pod, old, policy, until)

    async def _judge_workload(
        self, request: AdmissionRequest, kind: WorkloadKind, policy: NamespacePolicy, until: float
    ) -> Verdict:
        new = required_workload(request, "object")
        old = required_workload(request, "oldObject") if request.operation == "UPDATE" else None
        return await self._workloads.decide(request, WorkloadWrite(kind, new, old), policy, until)


def _is_judged(request: AdmissionRequest, kind: WorkloadKind | None) -> bool:
    """Return whether a request writes something that is charged."""
    if kind is None and not request.is_pods():
        return False
    if not request.sub_resource:
        return request.operation in _WRITES
    if request.operation != "UPDATE":
        return False
    if kind is None:
        return request.sub_resource in ("resize", EPHEMERAL)
    return request.sub_resource == "scale" and kind.root and kind.scale is not None


def _is_definition(request: AdmissionRequest) -> bool:
    if request.sub_resource or request.operation not in _WRITES:
        return False
    return request.resource.name in quota_lint.NAMES


def _softened(verdict: Verdict) -> Verdict:
    """Return a verdict that refuses nothing for want of room or sense, but says so."""
    denial = verdict.denial
    if denial is None or denial.reason in _STRICT:
        return verdict
    warnings = (f"not refused here: {brief(denial, overruled=True)}", *verdict.warnings)
    return msgspec.structs.replace(verdict, denial=None, outcome=denial.reason, warnings=warnings)
