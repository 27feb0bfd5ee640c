"""Resource claim admission: claims are charged when they are created, templates are checked.

* A claim that counts with its pod reserves nothing, because the pod's charge covers it
  (`claim_ownership`). Every other claim reserves its bound at its own key, once, regardless of the
  number of pods that use it.
* The spec of a claim is immutable, so an update matters only if its labels change, or the pod with
  which it counts. A claim with its own charge may not leave a quota that selects by labels, and may
  enter one that has room. A claim that leaves its pod reserves what it takes.
* A template reserves nothing. It is refused if its claims could never be allocated or charged.
"""

from typing import Final

import msgspec

from ledger.core.model.amounts import largest
from ledger.core.model.commands import Asker, Reserve
from ledger.core.model.denials import Denial
from ledger.core.model.traits import Traits
from ledger.kube.api.api_resources import CLAIM_TEMPLATES, CLAIMS
from ledger.kube.requests.pod_traits import label_traits
from ledger.kube.resource_claims.claim_demand import ClaimBound
from ledger.kube.resource_claims.dra_objects import ClaimSpec, ResourceClaim
from webhook.admission.leaving_quotas import TraitsChange
from webhook.admission.objects.object_admission import ObjectAdmission
from webhook.admission.owner_reference_trust import with_controller_as_owner
from webhook.admission.reservation_client import ReservationRequest
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.admission.write_attempts import base_observation
from webhook.api.admission_review import (
    AdmissionRequest,
    required_claim,
    required_claim_template,
)
from webhook.context.cluster_context import ClusterContext
from webhook.context.namespace_policies import NamespacePolicy
from webhook.context.read_deadline import read_deadline
from webhook.context.resource_claims.claim_denials import (
    of_claim_spec,
    unmapped_denial,
    unmapped_message,
)
from webhook.context.resource_claims.claim_index import place_of

REVIEWED: Final = frozenset(
    (
        (CLAIMS.name, "CREATE"),
        (CLAIMS.name, "UPDATE"),
        (CLAIM_TEMPLATES.name, "CREATE"),
    )
)
"""Resources and operations that are decided here, without subresources."""

_REQUESTS: Final = "devices.requests"


class ResourceClaimAdmission(ObjectAdmission):
    """Decides about resource claims and their templates."""

    async def decide(
        self, request: AdmissionRequest, policy: NamespacePolicy, until: float
    ) -> Verdict:
        """Decide about a request in `REVIEWED`, by loop time `until`. Raises BadReview."""
        if request.resource.name == CLAIM_TEMPLATES.name:
            template = required_claim_template(request, "object")
            bound = await self._bound(template.spec.spec, "spec.spec", policy, until)
            if isinstance(bound, Denial):
                return Verdict(bound)
            return Verdict(warnings=bound.warnings) if bound.warnings else UNTOUCHED
        if request.operation == "CREATE":
            return await self._create(request, policy, until)
        return await self._update(request, policy, until)

    async def _create(
        self, request: AdmissionRequest, policy: NamespacePolicy, until: float
    ) -> Verdict:
        claim = _placed(required_claim(request, "object"), request)
        bound = await self._bound(claim.spec, "spec", policy, until)
        if isinstance(bound, Denial):
            return Verdict(bound)
        demand = bound.demand
        if not demand.amounts and not demand.unknown:
            return Verdict(warnings=bound.warnings) if bound.warnings else UNTOUCHED
        reserve = self._attempts.create(request, CLAIMS.name, claim.metadata, demand.amounts)
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        username = request.user_info.username
        counts_with_pod = await self._ownership.counts_with_pod(claim, username, policy, until)
        if isinstance(counts_with_pod, Denial):
            return Verdict(counts_with_pod)
        if counts_with_pod:
            if not request.dry_run:
                self._store.claims.note_reviewed(claim)
            return Verdict(namespace=reserve.namespace, key=reserve.key, warnings=bound.warnings)
        if self._ownership.is_trusted(claim, username):
            reserve = with_controller_as_owner(reserve, claim.metadata.controller())
        elif not request.dry_run:
            self._ownership.note_untrusted(claim, username)
        reserve = msgspec.structs.replace(
            _described(reserve, claim, policy, self._context),
            unknown=demand.unknown,
        )
        return await self._reservations.ask(
            ReservationRequest(request, policy, reserve, until, warnings=bound.warnings)
        )

    async def _bound(
        self, spec: ClaimSpec, field: str, policy: NamespacePolicy, until: float
    ) -> ClaimBound | Denial:
        """Return the bound of a claim with its warnings, or a denial with the field of the spec."""
        denial = await self._store.prepare_classes(spec, read_deadline(until))
        if denial is not None:
            return denial
        bound = self._store.bound(spec)
        if isinstance(bound, Denial):
            return of_claim_spec(bound, field)
        if not bound.unmapped:
            return bound
        if policy.unmapped_device_classes == "deny":
            return unmapped_denial(f"{field}.{_REQUESTS}", bound.unmapped)
        warnings = (unmapped_message(bound.unmapped), *bound.warnings)
        return msgspec.structs.replace(bound, warnings=warnings)

    async def _update(
        self, request: AdmissionRequest, policy: NamespacePolicy, until: float
    ) -> Verdict:
        """Decide about a change of labels; the amounts of the claim stay as they are charged.

        A claim that counts with its pod may leave it only if there is room for the claim itself.
        """
        claim = _placed(required_claim(request, "object"), request)
        stored = required_claim(request, "oldObject")
        place = place_of(stored)
        if place not in (None, place_of(claim)) and not self._store.has_own_entry(claim):
            return await self._leave_pod(request, claim, policy, until)
        labels = self._context.rules.labels
        before, after = label_traits(stored.metadata, labels), label_traits(claim.metadata, labels)
        if before == after:
            return UNTOUCHED
        reserve = self._attempts.update(request, CLAIMS.name, claim.metadata, stored.metadata, {})
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        charge = self._ownership.held_by(reserve.namespace, reserve.key, reserve.uid)
        if charge is None:
            return UNTOUCHED  # it counts with its pod, or nothing was charged
        reserve = msgspec.structs.replace(
            _described(reserve, claim, policy, self._context), demand=charge
        )
        return await self._relabel(request, reserve, (before, after), policy, until)

    async def _relabel(
        self,
        request: AdmissionRequest,
        reserve: Reserve,
        traits: tuple[Traits, Traits],
        policy: NamespacePolicy,
        until: float,
    ) -> Verdict:
        """Decide about a claim with its own charge, whose traits change from one to the other."""
        meta = required_claim(request, "object").metadata
        unowned = msgspec.structs.replace(meta, owner_references=None)
        change = TraitsChange(*traits, unowned, unowned)
        if not policy.may_exceed_limits(request.user_info):
            denial = await self._quota_membership.objection(reserve, change, policy, until)
            if denial is not None:
                return Verdict(denial)
        if not self._quota_membership.enters(reserve, change):
            return await self._reservations.share(reserve, until)
        known = (base_observation(reserve, reserve.demand, traits[0]),)
        return await self._reservations.ask(
            ReservationRequest(request, policy, reserve, until, known)
        )

    async def _leave_pod(
        self, request: AdmissionRequest, claim: ResourceClaim, policy: NamespacePolicy, until: float
    ) -> Verdict:
        """Reserve what a claim takes that would no longer count with its pod.

        Else the pod, or its successor in a workload, could have another claim for the same charge.
        That is its bound, also of an allocated claim: the end of the allocation returns to it.
        """
        denial = await self._store.prepare_classes(claim.spec, read_deadline(until))
        if denial is not None:
            return Verdict(denial)
        demand = self._store.of_claim(claim)
        if isinstance(demand, Denial) or not (demand.amounts or demand.unknown):
            return UNTOUCHED
        stored = required_claim(request, "oldObject").metadata
        bound = self._store.bound(claim.spec)
        most = {} if isinstance(bound, Denial) else bound.demand.amounts
        amounts = largest(demand.amounts, most)
        reserve = self._attempts.update(request, CLAIMS.name, claim.metadata, stored, amounts)
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        reserve = msgspec.structs.replace(
            _described(reserve, claim, policy, self._context), unknown=demand.unknown
        )
        return await self._reservations.ask(ReservationRequest(request, policy, reserve, until))


def _placed(claim: ResourceClaim, request: AdmissionRequest) -> ResourceClaim:
    """Return a claim with the name and namespace of its request."""
    meta = claim.metadata
    name, namespace = request.name or meta.name, request.namespace or meta.namespace
    if (meta.name, meta.namespace) == (name, namespace):
        return claim
    metadata = msgspec.structs.replace(meta, name=name, namespace=namespace)
    return msgspec.structs.replace(claim, metadata=metadata)


def _described(
    reserve: Reserve, claim: ResourceClaim, policy: NamespacePolicy, context: ClusterContext
) -> Reserve:
    """Return a reservation with what a denial and quotas need of the claim."""
    return msgspec.structs.replace(
        reserve,
        asker=Asker(CLAIMS.kind),
        own_holders=policy.foreign_holders == "none",
        traits=label_traits(claim.metadata, context.rules.labels),
    )
