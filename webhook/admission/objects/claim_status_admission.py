"""Claim status admission: allocations of resource claims, where a setting has them reviewed.

A claim was charged with the most that it could consume when it was reviewed. Devices that appear
later may be larger. Without this review such an allocation is stored, and charged beyond a limit.
With it, an allocation that takes more than the charge of its holder is refused unless it fits. The
scheduler tries again, perhaps with another device.

Nothing is reserved here, because settlement charges a stored allocation at once. So two allocations
at the same moment may both pass, and together exceed a limit.
"""

from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts, covers
from ledger.core.model.commands import Asker, Reserve
from ledger.core.model.denials import Denial
from ledger.kube.api.api_resources import CLAIMS, PODS
from ledger.kube.api.objects import Pod
from ledger.kube.requests.pod_demand import Demand, demand_of
from ledger.kube.requests.pod_traits import label_traits, recorded_traits
from ledger.kube.resource_claims.allocation import Allocated
from ledger.kube.resource_claims.dra_objects import ResourceClaim
from webhook.admission.objects.object_admission import ObjectAdmission
from webhook.admission.reservation_client import UNAVAILABLE
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.api.admission_review import AdmissionRequest, required_claim
from webhook.context.admitted_demand import promised_demand
from webhook.context.namespace_policies import NamespacePolicy
from webhook.context.read_deadline import read_deadline
from webhook.context.resource_claims.claim_denials import undecided_denial
from webhook.context.resource_claims.claim_index import EXTENDED, place_of
from webhook.context.resource_claims.claim_store import class_names
from webhook.context.resource_claims.extended_resources import ServedResources, with_served

STATUS: Final = (CLAIMS.name, "UPDATE", "status")
"""Resource, operation and subresource that are decided here."""


class ClaimStatusAdmission(ObjectAdmission):
    """Decides about allocations."""

    async def decide(
        self, request: AdmissionRequest, policy: NamespacePolicy, until: float
    ) -> Verdict:
        """Decide about a write of a claim's status, by loop time `until`. Raises BadReview."""
        claim, stored = required_claim(request, "object"), required_claim(request, "oldObject")
        if policy.may_exceed_limits(request.user_info) or claim.status.allocation is None:
            return UNTOUCHED
        problem = await self._store.wait_listed(read_deadline(until))
        if problem:
            return Verdict(undecided_denial("the device classes and slices", problem))
        given = self._store.allocation(claim)
        if given is None or not given.amounts:
            return UNTOUCHED
        reserve = self._attempts.update(
            request, CLAIMS.name, claim.metadata, stored.metadata, given.amounts
        )
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        traits = label_traits(claim.metadata, self._context.rules.labels)
        reserve = msgspec.structs.replace(
            reserve,
            asker=Asker(CLAIMS.kind),
            own_holders=policy.foreign_holders == "none",
            traits=traits,
        )
        if not self._store.has_own_entry(claim):
            of_pod = await self._of_pod(claim, given, reserve, until)
            if isinstance(of_pod, Verdict):
                return of_pod
            reserve = of_pod
        return await self._fits(reserve, until)

    async def _of_pod(
        self, claim: ResourceClaim, given: Allocated, reserve: Reserve, until: float
    ) -> Reserve | Verdict:
        """Return the reservation for the pod of a claim, with this allocation in its demand.

        That of the claim itself if it counts with no pod of the ledger.
        """
        place, owner = place_of(claim), claim.metadata.controller()
        if place is None or owner is None:
            return reserve
        deadline, namespace = read_deadline(until), claim.metadata.namespace
        pod = await self._ownership.pod_of(namespace, owner, deadline)
        if isinstance(pod, Denial):
            return Verdict(pod)
        charge = await self._ownership.charge_of(namespace, owner, deadline, wait=False)
        if pod is None or charge is None:
            return reserve
        demand = self._demand(pod, place[1], claim, given)
        if isinstance(demand, Denial):
            return UNTOUCHED  # its other claims changed since it was admitted
        return self._raised(pod, demand, reserve)

    def _demand(
        self, pod: Pod, name: str, claim: ResourceClaim, given: Allocated
    ) -> Demand | Denial:
        """Return the demand of a pod with the allocation of its claim `name`, or `EXTENDED`."""
        rules = self._context.rules
        if name != EXTENDED:
            rules = msgspec.structs.replace(rules, claims=self._store.with_claim(name, claim))
            return demand_of(pod, rules)
        demand = demand_of(pod, rules)
        if isinstance(demand, Denial):
            return demand
        classes = (self._store.classes.get("", each) for each in class_names(claim.spec))
        names = {each.spec.extended_resource_name for each in classes if each is not None}
        served = ServedResources(frozenset(names - {""}) or rules.of_cards, given.amounts)
        return with_served(pod, demand, rules, served)

    def _raised(self, pod: Pod, demand: Demand, reserve: Reserve) -> Reserve:
        """Return the reservation for a pod that a claim was allocated for."""
        rules = self._context.rules
        key = f"{PODS.name}/{pod.metadata.name}"
        where = reserve.namespace, key, pod.metadata.uid
        reserve = msgspec.structs.replace(
            reserve,
            key=key,
            uid=pod.metadata.uid,
            demand=promised_demand(self._context.view.state, where, demand.amounts, demand.assumed),
            traits=recorded_traits(pod, rules.labels),
            asker=Asker(PODS.kind),
        )
        return msgspec.structs.replace(reserve, root=self._context.recorded_root(reserve) or "")

    async def _fits(self, reserve: Reserve, until: float) -> Verdict:
        """Return whether the charge of a holder covers a demand, or there is room for the rise."""
        if covers(self._charged(reserve), reserve.demand):
            return UNTOUCHED
        denial = await self._reservations.dry_run(reserve, until)
        if denial is None:
            return UNTOUCHED
        if denial.reason in UNAVAILABLE and self._settings.allow_unavailable:
            return UNTOUCHED
        return Verdict(denial)

    def _charged(self, reserve: Reserve) -> Amounts:
        """Return the amounts that the ledger holds for the uid of a reservation."""
        return self._ownership.held_by(reserve.namespace, reserve.key, reserve.uid) or {}
