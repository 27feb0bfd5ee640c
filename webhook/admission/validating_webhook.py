"""Validating webhook: selects the check of a review, and charges pods, workloads and claims.

Only validating admission has the final uid and name of a new object. The webhook answers "allowed"
after the reservation is durable, and before the deadline: a ledger that does not answer in time is
treated as unavailable.

Creations and updates of pods, of objects of every known kind, of their scales and of resource
claims are decided, creations of templates of claims, and allocations where they are reviewed.
Quotas and policies with an invalid amount are refused. Every request that can write annotations of
a pod, including Bindings and statuses, is checked for annotations of allocations in every mode:
only trusted users may write them. Ephemeral containers are refused only if they are privileged. All
other requests (DELETE, eviction, other kinds) are allowed unchanged.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
import structlog

from ledger.core.model.denials import Denial
from ledger.kube.api.quoting import shown
from ledger.log.ledger_port import Ledger
from webhook.admission import reserved_annotations
from webhook.admission.objects import quota_admission
from webhook.admission.objects.claim_status_admission import STATUS, ClaimStatusAdmission
from webhook.admission.objects.pod_admission import WRITES, PodAdmission
from webhook.admission.objects.resource_claim_admission import REVIEWED, ResourceClaimAdmission
from webhook.admission.objects.scale_admission import ScaleAdmission
from webhook.admission.objects.workload_admission import WorkloadAdmission, WorkloadWrite
from webhook.admission.reservation_client import ReservationClient
from webhook.admission.verdict import UNTOUCHED, Verdict, softened
from webhook.admission.write_attempts import WriteAttempts
from webhook.api.admission_review import (
    AdmissionRequest,
    AdmissionResponse,
    AnsweredAdmissionReview,
    decode,
    denied_status,
    optional_metadata,
    required_metadata,
    required_workload,
    warning,
)
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext
from webhook.context.namespace_policies import NamespacePolicy
from webhook.context.read_deadline import read_deadline
from webhook.kinds.kind_schema import WorkloadKind

Decide = Callable[[AdmissionRequest, NamespacePolicy, float], Awaitable[Verdict]]
"""Decides about a request by a policy until a loop time."""

_log: Final = structlog.get_logger("webhook")


class ValidatingWebhook:
    """Decides what is created and updated. `context` is what it has read around requests."""

    def __init__(
        self, ledger: Ledger, *, settings: AdmissionSettings, context: ClusterContext
    ) -> None:
        """Decide for the cluster of `context`."""
        self.context = context
        self._settings = settings
        reservations = ReservationClient(ledger, settings=settings, context=context)
        attempts = WriteAttempts(
            context.name, owner_holds_max=settings.owner_holds_max, recorded=settings.recorded
        )
        self._pods = PodAdmission(
            reservations, attempts=attempts, settings=settings, context=context
        )
        self._workloads = WorkloadAdmission(
            reservations, attempts=attempts, settings=settings, context=context
        )
        self._scales = ScaleAdmission(self._workloads, context)
        self._claims = ResourceClaimAdmission(
            reservations, attempts=attempts, settings=settings, context=context
        )
        self._claim_statuses = ClaimStatusAdmission(
            reservations, attempts=attempts, settings=settings, context=context
        )

    async def answer(self, body: bytes, until: float) -> AnsweredAdmissionReview:
        """Return the answer to a review, by loop time `until`. Raises BadReview."""
        request = decode(body)
        verdict = await self.decide(request, until)
        denial, status = verdict.denial, None
        decision, outcome = verdict.decision, verdict.outcome
        if denial is not None:
            status = denied_status(request, denial)
            decision, outcome = denial.decision, denial.reason
        # The annotation leads from the API server's audit log to our decision. The decision is part
        # of the key because the API server keeps the first value of a key only, and one API request
        # may take several decisions (conflicts, generated names).
        response = AdmissionResponse(
            request.uid,
            denial is None,
            status,
            tuple(map(warning, verdict.warnings)),
            {f"decision-{decision}": outcome} if decision else {},
        )
        return AnsweredAdmissionReview(response=response)

    async def decide(
        self, request: AdmissionRequest, until: float, *, own_holders: bool = False
    ) -> Verdict:
        """Decide a request; a dry run is decided like the real thing and changes nothing.

        With `own_holders` a denial names no other namespace. Raises BadReview.
        """
        field = self._forbidden_field(request)
        if field:
            return Verdict(await self._field_denial(request, field, until))
        decide = self._charging(request)
        if decide is None:
            return await self._decide_uncharged(request, until)
        policy = await self.context.policies.policy_of(request.namespace, until)
        if policy.mode == "off":
            return UNTOUCHED
        if own_holders:
            policy = msgspec.structs.replace(policy, foreign_holders="none")
        verdict = await decide(request, policy, until)
        return softened(verdict) if policy.mode == "warn" else verdict

    def _charging(self, request: AdmissionRequest) -> Decide | None:
        """Return the check of a request that may be charged, None for other requests."""
        if request.is_pods:
            if (request.operation, request.sub_resource) not in WRITES:
                return None
            return self._pods.create if request.operation == "CREATE" else self._pods.update
        resource = request.resource
        kind = self.context.catalog.of_resource(resource.group, resource.resource)
        if kind is not None and _writes_workload(request, kind):
            if request.sub_resource:
                return partial(self._scales.decide, kind=kind)
            return partial(self._decide_workload, kind=kind)
        if not request.sub_resource and (resource.name, request.operation) in REVIEWED:
            return self._claims.decide
        is_status = (resource.name, request.operation, request.sub_resource) == STATUS
        return self._claim_statuses.decide if is_status else None

    def _forbidden_field(self, request: AdmissionRequest) -> str:
        """Return the reserved field that a request may not write, "" where it may be made.

        Raises BadReview.
        """
        user, own = request.user_info.username, self.context.identity
        is_trusted = user in self._settings.trusted or (own and user == own)
        if is_trusted or not request.can_annotate_pod:
            return ""
        old = optional_metadata(request, "oldObject")
        new = required_metadata(request, "object")
        return reserved_annotations.changed_protected_field(new, old)

    async def _field_denial(self, request: AdmissionRequest, field: str, until: float) -> Denial:
        """Return why a reserved field may not be written; note who resembles a HAMi."""
        user = request.user_info.username
        accounts = self.context.refused_hami_accounts
        resembles = reserved_annotations.resembles_hami(request, field)
        may = resembles and await accounts.note(user, read_deadline(until))
        return reserved_annotations.protected_field_denial(field, shown(user), may_allocate=may)

    async def _decide_workload(
        self, request: AdmissionRequest, policy: NamespacePolicy, until: float, kind: WorkloadKind
    ) -> Verdict:
        new = required_workload(request, "object")
        old = required_workload(request, "oldObject") if request.operation == "UPDATE" else None
        return await self._workloads.decide(request, WorkloadWrite(kind, new, old), policy, until)

    async def _decide_uncharged(self, request: AdmissionRequest, until: float) -> Verdict:
        """Decide about definitions of limits; every other request passes untouched."""
        if _writes_definition(request):
            return await self._decide_definition(request, until)
        _log.debug(
            "review_passed_untouched",
            operation=shown(request.operation),
            resource=shown(request.resource.resource),
            subresource=shown(request.sub_resource),
        )
        return UNTOUCHED

    async def _decide_definition(self, request: AdmissionRequest, until: float) -> Verdict:
        """Decide about limits; where limits refuse nothing, senseless ones are not refused."""
        verdict = quota_admission.lint_quota(
            request,
            request.resource.name,
            self.context.rules,
            universe_authority=self._settings.universe_authority,
        )
        if verdict.denial is None or not request.namespace:
            return verdict
        policy = await self.context.policies.policy_of(request.namespace, until)
        return verdict if policy.mode == "enforce" else softened(verdict)


def _writes_workload(request: AdmissionRequest, kind: WorkloadKind) -> bool:
    """Return whether a request writes an object of a kind, or the scale of a charged one."""
    if not request.sub_resource:
        return request.operation in ("CREATE", "UPDATE")
    if request.operation != "UPDATE" or request.sub_resource != "scale":
        return False
    return kind.root and kind.scale is not None


def _writes_definition(request: AdmissionRequest) -> bool:
    if request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
        return False
    return request.resource.name in quota_admission.NAMES
