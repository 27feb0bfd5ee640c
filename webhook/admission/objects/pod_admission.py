"""Pod admission: pods are charged when they are created, or when an update requests more.

* CREATE reserves for the attempt `(uid, 0)`. The pod draws from its root's envelope if a controller
  of the root's kind has created it.
* UPDATE, of `pods/resize` too, reserves for `(uid, base)` if the pod requests more than before, or
  if further quotas count it by its traits. Any other change is allowed, with two exceptions: a
  quota would no longer count the pod, or the record of the change would exceed the namespace's
  share of the log. So finalizers, and labels by which no quota selects, can be written in any state
  of the ledger. An update may not change the card types that a pod names, because the pod may
  already have such a card.
* The resource claims that are generated for a pod are part of its charge. Their templates are read
  first, and the pod is remembered for the reviews of its claims.
* A pod that requests cards may have no privileged container, in any request that can add one. A new
  pod that names its node is refused if its scheduler places pods on cards.
* A pod that waits behind the gate reserves nothing. A change that removes the gate reserves all of
  its demand. So does a change by which the pod requests more or other quotas count it, because
  settlement may be reserving the pod's earlier demand, or this replica may not have applied yet
  that the pod is charged.
"""

from typing import Final

import msgspec

from ledger.core.decide import denial_wording
from ledger.core.model import display_names
from ledger.core.model.amounts import Amounts, covers
from ledger.core.model.commands import BARRED, Asker, Observe, Reserve
from ledger.core.model.denials import Denial, brief
from ledger.core.model.traits import Traits
from ledger.kube.api.objects import Pod
from ledger.kube.api.pod_gates import is_gated
from ledger.kube.requests.container_demand import needs_cards
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import Demand, demand_of
from ledger.kube.requests.pod_traits import recorded_traits
from webhook.admission import pod_checks
from webhook.admission.claim_checks import placed_pod
from webhook.admission.leaving_quotas import TraitsChange
from webhook.admission.objects.object_admission import ObjectAdmission
from webhook.admission.owner_reference_trust import (
    Ownership,
    forged_owner_denial,
    ownership_of,
    with_controller_as_owner,
    wrong_creator_denial,
)
from webhook.admission.reservation_client import ReservationRequest
from webhook.admission.reserved_annotations import STAMP
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.admission.write_attempts import base_observation
from webhook.api.admission_review import WARNING_CHARACTERS_MAX, AdmissionRequest, required_pod
from webhook.context.admitted_demand import awaited_of, promised_demand
from webhook.context.namespace_policies import NamespacePolicy
from webhook.context.owner_cache_content import cached_workload
from webhook.kinds.workload_envelope import envelope_of

WRITES: Final = frozenset(
    (("CREATE", ""), ("UPDATE", ""), ("UPDATE", "resize"), ("UPDATE", "ephemeralcontainers"))
)
"""Operations and subresources of pods that are decided here."""

_EPHEMERAL: Final = "ephemeralcontainers"
"""The subresource of pods by which debugging containers are added."""

_NO_DEMAND: Final = Demand({})


class PodWrite(msgspec.Struct, frozen=True):
    """One request about a pod: its namespace's policy, and what the pod asks for by these rules.

    `until` is the loop time by which it is answered. An update has the `stored` pod, which asks for
    `before`.
    """

    request: AdmissionRequest
    policy: NamespacePolicy
    rules: DemandRules
    until: float
    pod: Pod
    demand: Demand
    stored: Pod | None
    before: Demand | Denial


class PodAdmission(ObjectAdmission):
    """Decides about pods."""

    async def create(
        self, request: AdmissionRequest, policy: NamespacePolicy, until: float
    ) -> Verdict:
        """Decide about a new pod, by loop time `until`. Raises BadReview."""
        pod = placed_pod(required_pod(request, "object"), request)
        if not pod.spec.resource_claims:
            return await self._create(request, pod, policy, until)
        checked = await self._claims.check(pod.metadata.namespace, (pod,), policy, until)
        if checked.denial is not None:
            return Verdict(checked.denial)
        verdict = await self._create(request, pod, policy, until)
        if verdict.denial is None and verdict.demand and not request.dry_run:
            self._claims.remember(pod, checked, verdict.demand)
        if not checked.warnings:
            return verdict
        warnings = (*checked.warnings, *verdict.warnings)
        return msgspec.structs.replace(verdict, warnings=warnings)

    async def _create(
        self, request: AdmissionRequest, pod: Pod, policy: NamespacePolicy, until: float
    ) -> Verdict:
        write = self._checked(request, (pod, None), policy, until)
        if isinstance(write, Verdict):
            return write
        reserve = self._attempts.create(request, "pods", pod.metadata, write.demand.amounts)
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        owner_chains = self._context.owner_chains
        ownership = await ownership_of(owner_chains, request, pod.metadata, until)
        reserve = with_controller_as_owner(reserve, ownership.controller)
        shown_first = self._root_shown(reserve, ownership, write)
        warnings = _warnings(pod)
        reserve = _completed(reserve, write, ownership.key, _NO_DEMAND)
        if policy.on_exceeded == "pending" and is_gated(pod.spec):
            # Nothing is reserved that could remember that it may not draw.
            if reserve.root == BARRED:
                return Verdict(wrong_creator_denial(pod.metadata, request.user_info))
            return await self._waiting(reserve, until)
        return await self._reservations.ask(
            ReservationRequest(request, policy, reserve, until, shown_first, warnings)
        )

    async def update(
        self, request: AdmissionRequest, policy: NamespacePolicy, until: float
    ) -> Verdict:
        """Decide about a change of a pod, by loop time `until`. Raises BadReview."""
        if request.sub_resource == _EPHEMERAL:
            return await self._decide_ephemeral(request, until)
        pod = placed_pod(required_pod(request, "object"), request)
        stored = placed_pod(required_pod(request, "oldObject"), request)
        if pod.spec.resource_claims and is_gated(stored.spec) and not is_gated(pod.spec):
            # The pod was not charged, and its claims were allowed because of the gate.
            denial = await self._claims.prepare_stored(pod, until)
            if denial is not None:
                return Verdict(denial)
        write = self._checked(request, (pod, stored), policy, until)
        if isinstance(write, Verdict):
            return write
        before = write.before
        denial = pod_checks.type_change_denial(
            (write.pod, write.demand), (stored, before), write.rules
        )
        if denial is not None:
            return Verdict(denial)
        return await self._update(
            write, stored, _NO_DEMAND if isinstance(before, Denial) else before
        )

    async def _decide_ephemeral(self, request: AdmissionRequest, until: float) -> Verdict:
        """Decide about ephemeral containers, which can ask for nothing, but may be privileged."""
        pod = placed_pod(required_pod(request, "object"), request)
        stored = placed_pod(required_pod(request, "oldObject"), request)
        if self._settings.allow_privileged:
            return UNTOUCHED
        denial = await self._claims.prepare_stored(pod, until)
        if denial is None:
            denial = pod_checks.privileged_denial(pod, stored, self._context.rules)
        return UNTOUCHED if denial is None else Verdict(denial)

    def _checked(
        self,
        request: AdmissionRequest,
        pods: tuple[Pod, Pod | None],
        policy: NamespacePolicy,
        until: float,
    ) -> PodWrite | Verdict:
        """Return a write that asks for something, or the verdict for which no ledger is needed.

        `pods` are the new and the stored one.
        """
        pod, stored = pods
        rules = self._context.rules
        demand = demand_of(pod, rules)
        before = _NO_DEMAND if stored is None else demand_of(stored, rules)
        groups = request.user_info.groups
        denial = pod_checks.pod_denial(
            pod, stored, rules=rules, settings=self._settings, groups=groups
        )
        if isinstance(demand, Denial) and demand != before:
            denial = demand
        if denial is not None:
            return Verdict(denial)
        if isinstance(demand, Denial) or not demand.amounts:
            return UNTOUCHED
        return PodWrite(request, policy, rules, until, pod, demand, stored, before)

    async def _update(self, write: PodWrite, stored: Pod, before: Demand) -> Verdict:
        """Reserve for what exists. It stays under the root that it is under."""
        request, pod, demand = write.request, write.pod, write.demand
        denial = forged_owner_denial(
            self._context.owner_chains, pod.metadata, stored.metadata, request.user_info
        )
        if denial is not None:
            return Verdict(denial)
        labels = write.rules.labels
        change = TraitsChange(
            recorded_traits(stored, labels),
            recorded_traits(pod, labels),
            stored.metadata,
            pod.metadata,
        )
        is_let_in = is_gated(stored.spec) and not is_gated(pod.spec)
        more = is_let_in or not covers(before.amounts, demand.amounts)
        if not more and (stored.status.has_ended() or not change.is_any):
            return UNTOUCHED
        reserve = self._attempts.update(
            request, "pods", pod.metadata, stored.metadata, demand.amounts
        )
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        counted = self._quota_membership.is_charged(reserve) or not is_gated(stored.spec)
        if counted and not write.policy.may_exceed_limits(request.user_info):
            denial = await self._quota_membership.objection(
                reserve, change, write.policy, write.until
            )
            if denial is not None:
                return Verdict(denial)
        more = more or self._quota_membership.enters(reserve, change)
        if not more and not (counted and change.before != change.after):
            return UNTOUCHED
        root = await self._root_key(reserve, write, stored)
        reserve = _completed(reserve, write, root, before if counted else _NO_DEMAND)
        # A gated pod was not charged, so its claims are charged when the gate is removed.
        promised = demand.amounts if is_let_in else self._promised(reserve, demand)
        reserve = msgspec.structs.replace(reserve, demand=promised)
        known: tuple[Observe, ...] = ()
        if counted:
            known = self._base(reserve, before, change.before)
        question = ReservationRequest(request, write.policy, reserve, write.until, known)
        return await (
            self._reservations.ask(question)
            if more
            else self._reservations.share(reserve, write.until)
        )

    async def _root_key(self, reserve: Reserve, write: PodWrite, stored: Pod) -> str:
        """Return the key of a stored pod's root: the recorded one, else by its owners."""
        recorded = self._context.recorded_root(reserve)
        if recorded is not None:
            return recorded
        chain = await self._context.owner_chains.chain_of(
            write.request.namespace or write.pod.metadata.namespace,
            stored.metadata.controller(),
            until=write.until,
        )
        return chain.root.key if chain.root is not None else ""

    def _promised(self, reserve: Reserve, demand: Demand) -> Amounts:
        """Return the amounts that an existing pod is charged for a demand."""
        place = reserve.namespace, reserve.key, reserve.uid
        awaited = awaited_of(demand.deferred, unresolved=demand.unresolved)
        state = self._context.view.state
        return promised_demand(state, place, demand.amounts, demand.assumed, awaited=awaited)

    def _base(self, reserve: Reserve, before: Demand, traits: Traits) -> tuple[Observe, ...]:
        """Return the observation of the pod before an update.

        It is left out if it would lower the charge for resource claims that do not exist yet:
        another replica may have reserved for them a moment ago.
        """
        promised = self._promised(reserve, before)
        awaited = awaited_of(before.deferred, unresolved=before.unresolved)
        if awaited.lowers(promised, before.amounts):
            return ()
        return (base_observation(reserve, promised, traits),)

    async def _waiting(self, reserve: Reserve, until: float) -> Verdict:
        """Let a pod be created that waits for room, and warn when there is none now."""
        denial = await self._reservations.dry_run(reserve, until)
        warnings = () if denial is None else (_waits(reserve, denial),)
        return Verdict(namespace=reserve.namespace, key=reserve.key, warnings=warnings)

    def _root_shown(
        self, reserve: Reserve, ownership: Ownership, write: PodWrite
    ) -> tuple[Observe, ...]:
        """Return the observation of a root that the ledger does not have yet.

        It is left out if the root names templates of resource claims: the templates may have
        changed, and another replica may have reserved for them a moment ago.
        """
        root, policy = ownership.root, write.policy
        is_barred = ownership.key == BARRED
        if root is None or root.seen is None or is_barred or not policy.charges_roots:
            return ()
        workload = cached_workload(root.seen)
        if workload is None:
            return ()
        envelope = envelope_of(
            root.kind,
            workload,
            write.rules,
            surge=policy.surge,
            elastic_max=policy.elastic_max,
        )
        if isinstance(envelope, Denial) or envelope.finished or envelope.deferred:
            return ()
        return (
            Observe(
                reserve.namespace,
                root.key,
                root.uid,
                root.seen.version,
                envelope.demand,
                reserve.actor,
                traits=envelope.traits,
                generation=root.seen.generation,
            ),
        )


def _completed(reserve: Reserve, write: PodWrite, root: str, before: Demand) -> Reserve:
    """Return the reservation with the root that it draws from and the traits of the pod."""
    demand = write.demand
    unknown = demand.unknown if demand.memory_unknown and not before.memory_unknown else ""
    return msgspec.structs.replace(
        reserve,
        root=root,
        unknown=unknown,
        asker=Asker("Pod", cards=_cards(write)),
        own_holders=write.policy.foreign_holders == "none",
        traits=recorded_traits(write.pod, write.rules.labels),
    )


def _cards(write: PodWrite) -> int:
    """Return how many cards a pod asks for, 0 where several containers do."""
    demand, spec = write.demand.amounts, write.pod.spec
    counts = [demand.get(vendor.count, 0) for vendor in write.rules.vendors if vendor.count]
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    if (
        len(containers) > 1
        and sum(needs_cards(container, write.rules) for container in containers) != 1
    ):
        return 0
    return max(counts, default=0)


def _waits(reserve: Reserve, denial: Denial) -> str:
    """Return the warning to the creator of a pod that waits, with every short line if it fits."""
    head = f"{display_names.object_name(reserve.key)} is created and waits"
    if denial.shortages and denial.transient:
        head += f"; it starts when {denial_wording.released(denial.shortages)} released"
    head += "; do not create it again"
    whole = f"{head}. {denial.message}. [{denial.reason}]"
    if len(whole) <= WARNING_CHARACTERS_MAX and denial.transient:
        return whole
    return f"{head}. {brief(denial, overruled=denial.transient)}"


def _warnings(pod: Pod) -> tuple[str, ...]:
    warnings = []
    if pod.spec.node_name:
        warnings.append("spec.nodeName is set: no scheduler chooses the cards; the pod is charged")
    if STAMP in (pod.metadata.annotations or {}):
        warnings.append(f"{STAMP} means nothing since stamps were removed; leave it out")
    return tuple(warnings)
