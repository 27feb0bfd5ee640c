"""Claim ownership: whether a new resource claim counts with the pod that controls it.

A claim counts with its pod if all of this holds. A trusted controller or scheduler creates it. The
controller of the claim is a pod that lists it. No other live claim is known for the same claim of
the pod. The charge that the ledger has for the pod's uid covers the pod with the spec of this
claim, which may differ from the template that was reviewed with the pod. Every other claim counts
by itself, so a forged reference or annotation saves nothing.
"""

import asyncio
from collections import Counter
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts, covers, largest
from ledger.core.model.denials import Denial
from ledger.core.model.qualified_names import qualified
from ledger.kube.api.api_resources import CLAIMS, PODS, Resource
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.objects import OwnerReference, Pod, PodSpec, PodStatus, Workload
from ledger.kube.api.pod_gates import is_gated
from ledger.kube.api.quoting import shown
from ledger.kube.requests.pod_demand import demand_of, without_claims
from ledger.kube.resource_claims.dra_objects import ResourceClaim
from webhook.admission import pod_checks
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext
from webhook.context.namespace_policies import NamespacePolicy
from webhook.context.read_deadline import read_deadline
from webhook.context.resource_claims.claim_denials import in_flight_denial, undecided_denial
from webhook.context.resource_claims.claim_index import EXTENDED, Place, place_of

IN_FLIGHT_SECONDS: Final = 1.0
"""Seconds in which an allowed claim that cannot be read may still be written."""

CHARGE_WAIT_SECONDS: Final = 0.5
"""Longest wait for the charge of a pod, which another replica may have reserved a moment ago."""

LOOK_SECONDS: Final = 0.02
"""Period in which the charge is looked up meanwhile."""


class ClaimOwnership:
    """Decides for the claims of one cluster."""

    def __init__(self, settings: AdmissionSettings, context: ClusterContext) -> None:
        self._settings = settings
        self._context = context
        self._store = context.resource_claims

    async def counts_with_pod(
        self, claim: ResourceClaim, username: str, policy: NamespacePolicy, until: float
    ) -> bool | Denial:
        """Return whether a new claim of a user counts with its pod, by loop time `until`.

        If the policy lets pods wait, a claim of a gated pod without a charge counts with it: the
        pod is not scheduled before its demand is reserved. The denial is transient if an object on
        which the answer depends could not be read; a privileged pod may have no claim of cards.
        """
        place, owner = place_of(claim), claim.metadata.controller()
        if place is None or owner is None or not self.is_trusted(claim, username):
            return False
        deadline = read_deadline(until)
        other = await self._has_sibling(claim, place, deadline)
        if other is not False:
            return other if isinstance(other, Denial) else False
        if place[1] == EXTENDED:
            return await self._serves_extended(claim, owner, deadline)
        may_wait = policy.on_exceeded == "pending"
        return await self._serves_template(claim, place, may_wait=may_wait, deadline=deadline)

    def is_trusted(self, claim: ResourceClaim, username: str) -> bool:
        """Return whether a user may create claims that count with the pod that controls them."""
        place = place_of(claim)
        if place is None:
            return False
        settings = self._settings
        is_extended = place[1] == EXTENDED
        return username in (
            settings.claim_schedulers if is_extended else settings.claim_controllers
        )

    def note_untrusted(self, claim: ResourceClaim, username: str) -> None:
        """Record that a user who is not trusted has created a claim that names a pod as its owner.

        If it is the controller under another name, all of its claims count by themselves.
        """
        place = place_of(claim)
        if place is not None:
            setting = "claim_schedulers" if place[1] == EXTENDED else "claim_controllers"
            self._context.owner_chains.unrecognized_controllers.note_claim(setting, username)

    async def _serves_template(
        self, claim: ResourceClaim, place: Place, *, may_wait: bool, deadline: float
    ) -> bool | Denial:
        """Return whether the charge of a pod covers a claim that was generated for it."""
        namespace, owner = claim.metadata.namespace, claim.metadata.controller()
        assert owner is not None, "a claim with a place has a controller"
        pod = await self._unprivileged_pod(claim, owner, deadline)
        if pod is None or isinstance(pod, Denial):
            return pod if pod is not None else False
        if not _lists_template(pod, place[1]):
            return False
        waits = may_wait and is_gated(pod.spec)
        charge = await self.charge_of(namespace, owner, deadline, wait=not waits)
        if charge is None:
            return waits
        reviewed = self._store.reviewed_pods.get(owner.uid)
        if (
            reviewed is not None
            and reviewed.specs.get(place[1]) == claim.spec
            and covers(charge, reviewed.amounts)
        ):
            return True
        rules = self._context.rules
        rules = msgspec.structs.replace(rules, claims=self._store.with_claim(place[1], claim))
        demand = demand_of(pod, rules)
        return not isinstance(demand, Denial) and covers(charge, demand.amounts)

    async def _serves_extended(
        self, claim: ResourceClaim, owner: OwnerReference, deadline: float
    ) -> bool | Denial:
        """Return whether a pod is charged for the extended resources that a claim serves.

        Its containers have to request them: a charge for its other claims covers nothing here. If
        they request an amount of memory, the devices may not have more.
        """
        pod = await self._unprivileged_pod(claim, owner, deadline)
        if pod is None or isinstance(pod, Denial):
            return pod if pod is not None else False
        wanted: Counter[str] = Counter()
        for request in claim.spec.devices.requests or ():
            exactly = request.exactly
            if exactly is None or exactly.allocation_mode not in ("", "ExactCount"):
                return False
            device_class = self._store.classes.get("", exactly.device_class_name)
            resource = device_class.spec.extended_resource_name if device_class else ""
            if not resource or exactly.admin_access:
                return False
            wanted[resource] += exactly.count or 1
        asked = demand_of(without_claims(pod), self._context.rules)
        if isinstance(asked, Denial) or not wanted or not covers(asked.amounts, wanted):
            return False
        if self._exceeds_parts(claim, pod, asked.amounts):
            return False
        charge = await self.charge_of(claim.metadata.namespace, owner, deadline, wait=True)
        return charge is not None and covers(charge, wanted)

    async def _unprivileged_pod(
        self, claim: ResourceClaim, owner: OwnerReference, deadline: float
    ) -> Pod | Denial | None:
        """Return the pod of a claim; a denial if it is privileged and was not refused itself.

        When it was reviewed, its template did not exist, or it requested an extended resource that
        only a class serves.
        """
        pod = await self.pod_of(claim.metadata.namespace, owner, deadline)
        if pod is None or isinstance(pod, Denial) or self._settings.allow_privileged:
            return pod
        return pod_checks.privileged_owner_denial(pod, claim.metadata.name) or pod

    def _exceeds_parts(self, claim: ResourceClaim, pod: Pod, asked: Amounts) -> bool:
        """Return whether a claim may take more memory than the parts of cards that a pod requests.

        A container that requests no part of a card is charged the assumed size of a card.
        """
        bound = self._store.bound(claim.spec)
        amounts = {} if isinstance(bound, Denial) else bound.demand.amounts
        containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
        given = [each.resources for each in containers if each.resources is not None]
        named = {name for each in given for name in (*(each.limits or ()), *(each.requests or ()))}
        return any(
            amounts.get(vendor.memory, 0) > asked.get(vendor.memory, 0)
            for vendor in self._context.rules.by_name.values()
            if vendor.memory and not named.isdisjoint((vendor.memory, vendor.percentage))
        )

    async def _has_sibling(
        self, claim: ResourceClaim, place: Place, deadline: float
    ) -> bool | Denial:
        """Return whether another live claim counts with the pod in the place of this one.

        A known claim may be gone already, so it is read. A claim that was allowed a moment ago and
        does not exist may still be written.
        """
        meta = claim.metadata
        for other in self._store.claims.at(place):
            known = other.metadata
            if known.uid == meta.uid or known.namespace != meta.namespace:
                continue
            if self._store.has_own_entry(other):
                continue
            stored = await self._read(CLAIMS, meta.namespace, known.name, deadline)
            if isinstance(stored, Denial):
                return stored
            if stored is not None and stored.metadata.uid == known.uid:
                return True
            index = self._store.claims
            is_new = index.is_reviewed_only(known.uid)
            if is_new and index.reviewed_seconds(known.uid) < IN_FLIGHT_SECONDS:
                return in_flight_denial(known.name, place[1])
            index.drop(known.uid)
        return False

    async def pod_of(
        self, namespace: str, owner: OwnerReference, deadline: float
    ) -> Pod | Denial | None:
        """Return the pod that an owner reference names, None if it does not exist.

        A remembered pod that was gated is read, because its gate may have been removed.
        """
        reviewed = self._store.reviewed_pods.get(owner.uid)
        if reviewed is not None and not is_gated(reviewed.pod.spec):
            meta = reviewed.pod.metadata
            return reviewed.pod if (meta.namespace, meta.name) == (namespace, owner.name) else None
        seen = await self._read(PODS, namespace, owner.name, deadline)
        if seen is None or isinstance(seen, Denial):
            return seen
        if seen.metadata.uid != owner.uid:
            return None
        try:
            spec = msgspec.convert(seen.spec or {}, PodSpec)
            status = msgspec.convert(seen.status or {}, PodStatus)
        except msgspec.ValidationError as error:
            return undecided_denial(f"pod {shown(owner.name)}", str(error))
        return Pod(seen.metadata, spec, status)

    async def _read(
        self, resource: Resource, namespace: str, name: str, deadline: float
    ) -> Workload | Denial | None:
        cluster, what = self._context.cluster, f"{resource.kind} {shown(name)}"
        if cluster is None:
            return undecided_denial(what, "there is no connection to the cluster")
        try:
            async with asyncio.timeout_at(deadline):
                return await cluster.get_object(resource, namespace, name)
        except (ClusterError, TimeoutError) as error:
            return undecided_denial(what, str(error) or "no answer in time")

    async def charge_of(
        self, namespace: str, owner: OwnerReference, deadline: float, *, wait: bool
    ) -> Amounts | None:
        """Return the amounts that the ledger holds for a pod, None if it holds nothing.

        With `wait`, waits a moment for a pod that the ledger does not have: this replica may not
        have applied its reservation yet.
        """
        place = qualified(self._context.name, namespace), f"{PODS.name}/{owner.name}"
        clock = asyncio.get_running_loop().time
        ends = min(deadline, clock() + CHARGE_WAIT_SECONDS)
        while True:
            charge = self.held_by(*place, owner.uid)
            if charge is not None or not wait or clock() >= ends:
                return charge
            await asyncio.sleep(LOOK_SECONDS)

    def held_by(self, namespace: str, key: str, uid: str) -> Amounts | None:
        """Return the amounts that the ledger holds for a uid at a key, None if it holds nothing."""
        entry = self._context.view.state.entry(namespace, key)
        if entry is None or not entry.holds_uid(uid):
            return None
        charge: Amounts = {}
        for body in entry.bodies():
            if body.uid == uid:
                charge = largest(charge, body.demand)
        return charge


def _lists_template(pod: Pod, name: str) -> bool:
    """Return whether a pod names a template for its claim of this name."""
    return any(
        named.name == name and named.resource_claim_template_name
        for named in pod.spec.resource_claims or ()
    )
