"""Pods: charged when they are created, or when an update asks for more.

* CREATE reserves for the attempt `(uid, 0)`. The pod draws from its root's envelope if the
  expected controller has made it.
* UPDATE, also of `pods/resize`, reserves for `(uid, base)` when it asks for more than the old
  object accounts for, or when more quotas count the pod by what it is. Any other change passes,
  unless a quota would no longer count the pod, or what the change records is more than the
  namespace's share of the log. So finalizers and labels that no quota selects by can be written
  whatever the ledger's state. The types of cards that a
  pod names stay what they are: it may have such a card.
* Beside a container that asks for cards none may be privileged, in any request that can add one.
  A new pod that names its node is refused where its scheduler would place it on cards.
* A pod that waits behind the gate asks for nothing. A change that takes the gate away asks for all
  of it, and so does one by which the pod asks for more or other quotas count it: settlement may be
  reserving what the pod was before, or this replica may not know yet that the pod is charged.
"""

from typing import Final

import msgspec

from ledger.core.decide import advice_text
from ledger.core.model import display_names
from ledger.core.model.amounts import Amounts, covers
from ledger.core.model.commands import BARRED, Asker, Observe, Reserve
from ledger.core.model.denials import Denial, brief
from ledger.core.model.qualified_names import local_name
from ledger.core.model.traits import Traits
from ledger.kube.api.objects import Pod
from ledger.kube.api.pod_gates import is_gated
from ledger.kube.requests.container_requests import needs_cards
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import Demand, demand_of
from webhook.admission import admission_denials
from webhook.admission.attempts import Attempts, base_observation, with_controller_as_owner
from webhook.admission.ownership import Ownership, forged, ownership_of, wrong_creator_denial
from webhook.admission.protected_annotations import STAMP
from webhook.admission.quota_selection import QuotaSelection, TraitsChange
from webhook.admission.reservation import ReservationClient, ReservationRequest
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.api.admission_review import WARNING_CHARACTERS_MAX, AdmissionRequest
from webhook.api.admission_settings import AdmissionSettings
from webhook.context.assumed_demand import promised_demand
from webhook.context.cluster_context import ClusterContext
from webhook.context.owner_digest import cached_workload
from webhook.context.policies import NamespacePolicy
from webhook.kinds.envelope import envelope_of
from webhook.settlement.pod_observation import pod_traits

_NO_DEMAND: Final = Demand({})

_KUBELETS: Final = "system:nodes"
"""The group of the kubelets. What a kubelet creates shows a static pod, which runs already."""


class PodAdmission:
    """Judges pods."""

    def __init__(
        self,
        reservations: ReservationClient,
        attempts: Attempts,
        policy: AdmissionSettings,
        context: ClusterContext,
    ) -> None:
        self._reservations = reservations
        self._attempts = attempts
        self._policy = policy
        self._context = context
        self._quota_selection = QuotaSelection(context)

    async def decide(
        self,
        request: AdmissionRequest,
        pod: Pod,
        old: Pod | None,
        policy: NamespacePolicy,
        until: float,
    ) -> Verdict:
        """Decide about a pod, by loop time `until`. Raises BadReview."""
        demand = demand_of(pod, self._context.rules)
        before = _NO_DEMAND if old is None else demand_of(old, self._context.rules)
        denial = self._forbidden(request, pod, old)
        if isinstance(demand, Denial) and demand != before:
            denial = demand
        if denial is not None:
            return Verdict(denial)
        if isinstance(demand, Denial) or not demand.amounts:
            return UNTOUCHED
        if old is None:
            return await self._create(request, pod, demand, policy, until)
        denial = admission_denials.type_change_denial(
            (pod, demand), (old, before), self._context.rules
        )
        if denial is not None:
            return Verdict(denial)
        if isinstance(before, Denial):
            before = _NO_DEMAND
        return await self._update(request, (pod, demand), (old, before), policy, until)

    async def _create(
        self,
        request: AdmissionRequest,
        pod: Pod,
        demand: Demand,
        policy: NamespacePolicy,
        until: float,
    ) -> Verdict:
        reserve = self._attempts.create(request, "pods", pod.metadata, demand.amounts)
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        context, user = self._context, request.user_info
        ownership = await ownership_of(
            context.owner_chains,
            local_name(reserve.namespace),
            pod.metadata,
            user,
            deadline=context.until(until),
        )
        if ownership.controlled:
            reserve = with_controller_as_owner(reserve, pod.metadata)
        reserve = self._completed(reserve, ownership.key, pod, demand, _NO_DEMAND)
        if is_gated(pod.spec) and policy.on_exceeded == "pending":
            # Nothing is reserved that could remember that it may not draw.
            if ownership.key == BARRED:
                return Verdict(wrong_creator_denial(pod.metadata, user))
            return await self._waiting(reserve, until)
        shown_first = self._root_shown(reserve, ownership, policy)
        warnings = _warnings(pod)
        return await self._reservations.ask(
            _question(request, reserve, until, policy, shown_first, warnings)
        )

    async def _update(
        self,
        request: AdmissionRequest,
        new: tuple[Pod, Demand],
        old: tuple[Pod, Demand],
        policy: NamespacePolicy,
        until: float,
    ) -> Verdict:
        """Reserve for what exists. It stays under the root that it is under."""
        (pod, demand), (stored, before) = new, old
        owner_chains, user = self._context.owner_chains, request.user_info
        denial = forged(owner_chains, pod.metadata, stored.metadata, user)
        if denial is not None:
            return Verdict(denial)
        change = TraitsChange(
            self._traits(stored), self._traits(pod), stored.metadata, pod.metadata
        )
        more = _asks_for_more(new, old)
        if not more and (stored.status.has_ended() or not change.is_any):
            return UNTOUCHED
        reserve = self._attempts.update(
            request, "pods", pod.metadata, stored.metadata, demand.amounts
        )
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        charged = self._quota_selection.is_charged(reserve)
        counted = charged or not is_gated(stored.spec)
        if counted:
            denial = await self._unselected(request, reserve, change, policy, until)
            if denial is not None:
                return Verdict(denial)
        more = more or self._quota_selection.enters(reserve, change)
        if not more and not (counted and change.before != change.after):
            return UNTOUCHED
        root = await self._root_key(reserve, stored, until)
        asked = before if counted else _NO_DEMAND
        reserve = self._completed(reserve, root, pod, demand, asked)
        reserve = msgspec.structs.replace(reserve, demand=self._promised(reserve, demand))
        known: tuple[Observe, ...] = ()
        if counted:
            known = (
                base_observation(reserve, self._promised(reserve, before), self._traits(stored)),
            )
        question = _question(request, reserve, until, policy, known)
        return await (
            self._reservations.ask(question) if more else self._reservations.share(reserve, until)
        )

    async def _root_key(self, reserve: Reserve, stored: Pod, until: float) -> str:
        """Return the key of a stored pod's root: the recorded one, else by its owners."""
        recorded = self._context.recorded_root(reserve)
        if recorded is not None:
            return recorded
        root = await self._context.owner_chains.root_of(
            local_name(reserve.namespace),
            stored.metadata,
            deadline=self._context.until(until),
        )
        return root.key if root is not None else ""

    def _promised(self, reserve: Reserve, demand: Demand) -> Amounts:
        """Return what a pod that exists is charged for a demand."""
        place = reserve.namespace, reserve.key, reserve.uid
        return promised_demand(self._context.view.state, place, demand.amounts, demand.assumed)

    async def _unselected(
        self,
        request: AdmissionRequest,
        reserve: Reserve,
        change: TraitsChange,
        policy: NamespacePolicy,
        until: float,
    ) -> Denial | None:
        """Return why a change may not take the pod off a quota that selects by what it is."""
        if policy.may_exceed_limits(request.user_info):
            return None
        return await self._quota_selection.objection(reserve, change, policy, until)

    def _traits(self, pod: Pod) -> Traits:
        return pod_traits(pod, self._context.rules)

    def _completed(
        self, reserve: Reserve, root: str, pod: Pod, demand: Demand, before: Demand
    ) -> Reserve:
        """Return the reservation with what it draws from and what quotas select it by."""
        unknown = demand.unknown if demand.memory_unknown and not before.memory_unknown else ""
        asker = Asker("Pod", cards=_cards(pod, demand, self._context.rules))
        return msgspec.structs.replace(
            reserve, root=root, traits=self._traits(pod), unknown=unknown, asker=asker
        )

    async def _waiting(self, reserve: Reserve, until: float) -> Verdict:
        """Let a pod be created that waits for room, and say so when there is none now."""
        denial = await self._reservations.dry_run(reserve, until)
        warnings = () if denial is None else (_waits(reserve, denial),)
        return Verdict(namespace=reserve.namespace, key=reserve.key, warnings=warnings)

    def _root_shown(
        self, reserve: Reserve, ownership: Ownership, policy: NamespacePolicy
    ) -> tuple[Observe, ...]:
        """Return what tells the ledger of a root that it does not have yet."""
        root = ownership.root
        if root is None or root.seen is None or not ownership.trusted or not policy.charges_roots:
            return ()
        workload = cached_workload(root.seen)
        if workload is None:
            return ()
        envelope = envelope_of(
            root.kind,
            workload,
            self._context.rules,
            surge=policy.surge,
            elastic_max=policy.elastic_max,
        )
        if isinstance(envelope, Denial) or envelope.finished:
            return ()
        seen = root.seen
        return (
            Observe(
                reserve.namespace,
                root.key,
                root.uid,
                seen.version,
                envelope.demand,
                reserve.actor,
                traits=envelope.traits,
                generation=seen.generation,
            ),
        )

    def decide_ephemeral(self, pod: Pod, old: Pod) -> Verdict:
        """Decide about ephemeral containers, which can ask for nothing, but may be privileged."""
        denial = self._privileged(pod, old)
        return UNTOUCHED if denial is None else Verdict(denial)

    def _forbidden(self, request: AdmissionRequest, pod: Pod, old: Pod | None) -> Denial | None:
        """Return why the pod may not be written, whatever there is room for."""
        rules = self._context.rules
        denial = admission_denials.placement_denial(pod, old, rules) or self._privileged(pod, old)
        if denial is None and old is None and _KUBELETS not in request.user_info.groups:
            denial = admission_denials.assigned_node_denial(pod, rules, self._policy.schedulers)
        return denial

    def _privileged(self, pod: Pod, old: Pod | None) -> Denial | None:
        if self._policy.allow_privileged:
            return None
        return admission_denials.privileged_denial(pod, old, self._context.rules)


def _cards(pod: Pod, demand: Demand, rules: DemandRules) -> int:
    """Return how many cards a pod asks for, 0 where several containers do."""
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    asking = [one for one in containers if needs_cards(one, rules)]
    counts = [demand.amounts.get(vendor.count, 0) for vendor in rules.vendors if vendor.count]
    return max(counts, default=0) if len(asking) == 1 else 0


def _waits(reserve: Reserve, denial: Denial) -> str:
    """Return what the creator of a pod is told that waits: every short line if that is not cut."""
    head = f"{display_names.object_name(reserve.key)} is created and waits"
    if denial.shortages and denial.transient:
        head += f"; it starts when {advice_text.released(denial.shortages)} released"
    head += "; do not create it again"
    whole = f"{head}. {denial.message}. [{denial.reason}]"
    if len(whole) <= WARNING_CHARACTERS_MAX and denial.transient:
        return whole
    return f"{head}. {brief(denial, overruled=denial.transient)}"


def _asks_for_more(new: tuple[Pod, Demand], old: tuple[Pod, Demand]) -> bool:
    """Return whether a pod asks for more than before, or no longer waits behind the gate."""
    (pod, demand), (stored, before) = new, old
    is_let_in = is_gated(stored.spec) and not is_gated(pod.spec)
    return is_let_in or not covers(before.amounts, demand.amounts)


def _question(
    request: AdmissionRequest,
    reserve: Reserve,
    until: float,
    policy: NamespacePolicy,
    shown_first: tuple[Observe, ...],
    warnings: tuple[str, ...] = (),
) -> ReservationRequest:
    return ReservationRequest(
        reserve,
        until,
        shown_first,
        dry_run=bool(request.dry_run),
        may_exceed_limits=policy.may_exceed_limits(request.user_info),
        warnings=warnings,
    )


def _warnings(pod: Pod) -> tuple[str, ...]:
    found = []
    if pod.spec.node_name:
        found.append("spec.nodeName is set: no scheduler chooses the cards; the pod is charged")
    if STAMP in (pod.metadata.annotations or {}):
        found.append(f"{STAMP} means nothing since stamps were removed; leave it out")
    return tuple(found)
