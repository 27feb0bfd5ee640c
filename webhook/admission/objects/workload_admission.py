"""Workload admission: a root is charged for all pods that it may run at once, before it makes any.

An object that belongs to another root, such as the ReplicaSet of a Deployment, is charged with that
root. If a user other than the controller creates such an object, the object is charged by itself,
and that never changes.
"""

from typing import Final

import msgspec

from ledger.core.model import amounts
from ledger.core.model.commands import BARRED, Asker, Observe, Reserve
from ledger.core.model.denials import Denial, Reason, brief
from ledger.kube.api.objects import Workload
from webhook.admission.leaving_quotas import TraitsChange
from webhook.admission.objects import template_checks
from webhook.admission.objects.object_admission import ObjectAdmission
from webhook.admission.objects.rollouts import Rollout, Rollouts
from webhook.admission.objects.template_claims import TemplateClaims
from webhook.admission.owner_reference_trust import (
    forged_owner_denial,
    ownership_of,
    with_controller_as_owner,
    wrong_creator_denial,
)
from webhook.admission.reservation_client import ReservationRequest
from webhook.admission.verdict import UNTOUCHED, Verdict
from webhook.admission.write_attempts import base_observation
from webhook.api.admission_review import AdmissionRequest
from webhook.context.admitted_demand import awaited_of, promised_demand
from webhook.context.namespace_policies import NamespacePolicy
from webhook.kinds.kind_schema import WorkloadKind
from webhook.kinds.workload_envelope import Envelope, envelope_of

_NOTHING: Final = Envelope({})


class WorkloadWrite(msgspec.Struct, frozen=True):
    """One write of an object of a kind: the new object, and the old one if it exists."""

    kind: WorkloadKind
    new: Workload
    old: Workload | None


class _Change(msgspec.Struct, frozen=True):
    """A write and the envelopes of the object before and after it."""

    write: WorkloadWrite
    envelope: Envelope
    before: Envelope

    @property
    def is_more(self) -> bool:
        """Whether the object may run more than before, or other quotas may count it."""
        now, before = self.envelope, self.before
        covered = amounts.covers(before.demand, now.demand)
        return not covered or bool(set(now.traits) - set(before.traits))

    def rollout(self, reserve: Reserve) -> Rollout | None:
        """Return the rollout that the write may begin, None for a new object."""
        kind, new, old = self.write.kind, self.write.new, self.write.old
        if old is None:
            return None
        before, now = self.before, self.envelope
        left = before.demand
        if not 0 < before.pods <= now.pods:
            left = amounts.smallest(left, now.demand)
        return Rollout(kind, old, new, left, reserve)


class WorkloadAdmission(ObjectAdmission):
    """Decides about objects of all kinds."""

    @property
    def _rollouts(self) -> Rollouts:
        return Rollouts(self._reservations, self._context)

    async def decide(
        self, request: AdmissionRequest, write: WorkloadWrite, policy: NamespacePolicy, until: float
    ) -> Verdict:
        """Decide about a write, by loop time `until`. Raises BadReview."""
        objects = write.kind, write.new, write.old
        checked = await TemplateClaims(self._claims).check(request, objects, policy, until)
        if isinstance(checked, Denial):
            return Verdict(checked)
        verdict = await self._decide(request, write, policy, until)
        if not checked:
            return verdict
        return msgspec.structs.replace(verdict, warnings=(*checked, *verdict.warnings))

    async def _decide(
        self, request: AdmissionRequest, write: WorkloadWrite, policy: NamespacePolicy, until: float
    ) -> Verdict:
        change = self._read(write, policy)
        if isinstance(change, Denial):
            return Verdict(change)
        reserve = await self._claim(request, change, policy, until)
        if reserve is None:
            return UNTOUCHED
        if isinstance(reserve, Denial):
            return Verdict(reserve)
        if write.kind.root and policy.charges_roots:
            return await self._reserve(request, reserve, change, policy, until)
        return await self._warn_only(reserve, change, until)

    def _read(self, write: WorkloadWrite, policy: NamespacePolicy) -> _Change | Denial:
        """Return a write with its envelopes, or the denial of an object that has become invalid."""
        envelope = self._envelope(write.kind, write.new, policy)
        before: Envelope | Denial = _NOTHING
        if write.old is not None:
            before = self._envelope(write.kind, write.old, policy)
        if isinstance(envelope, Denial) and envelope != before:
            return envelope
        if isinstance(before, Denial):
            before = _NOTHING
        return _Change(write, _NOTHING if isinstance(envelope, Denial) else envelope, before)

    def _envelope(
        self, kind: WorkloadKind, workload: Workload, policy: NamespacePolicy
    ) -> Envelope | Denial:
        return envelope_of(
            kind,
            workload,
            self._context.rules,
            surge=policy.surge,
            elastic_max=policy.elastic_max,
        )

    async def _claim(
        self, request: AdmissionRequest, change: _Change, policy: NamespacePolicy, until: float
    ) -> Reserve | Denial | None:
        """Return the reservation of the object, None if it is not charged itself."""
        denial = self._template_refused(request, change.write)
        if denial is not None:
            return denial
        if not change.envelope.traits:
            return None
        reserve = self._reservation(request, change, policy)
        if isinstance(reserve, Denial):
            return reserve
        denial = await self._unselected(request, reserve, change, policy, until)
        if denial is not None:
            return denial
        return await self._rooted(request, reserve, change, until)

    async def _unselected(
        self,
        request: AdmissionRequest,
        reserve: Reserve,
        change: _Change,
        policy: NamespacePolicy,
        until: float,
    ) -> Denial | None:
        """Return the denial of an update that takes the object off a quota, or None."""
        write = change.write
        if write.old is None or policy.may_exceed_limits(request.user_info):
            return None
        before, after = change.before.traits, change.envelope.traits
        metadata = write.old.metadata, write.new.metadata
        traits_change = TraitsChange(before or after, after, *metadata, asked=bool(before))
        return await self._quota_membership.objection(reserve, traits_change, policy, until)

    def _template_refused(self, request: AdmissionRequest, write: WorkloadWrite) -> Denial | None:
        """Return the denial of an invalid template, None if the old object had the same denial."""
        by = (self._context.rules, self._settings, request.user_info.username)
        denial = template_checks.template_denial(write.kind, write.new, *by)
        if denial is None or write.old is None:
            return denial
        before = template_checks.template_denial(write.kind, write.old, *by)
        return None if before == denial else denial

    def _reservation(
        self, request: AdmissionRequest, change: _Change, policy: NamespacePolicy
    ) -> Reserve | Denial:
        write, envelope = change.write, change.envelope
        where = (request, write.kind.name, write.new.metadata)
        if write.old is None:
            reserve = self._attempts.create(*where, envelope.demand)
        else:
            reserve = self._attempts.update(*where, write.old.metadata, envelope.demand)
        if isinstance(reserve, Denial):
            return reserve
        unknown = envelope.unknown if not change.before.unknown else ""
        asker = Asker(write.kind.kind, envelope.pods, envelope.replicas)
        return msgspec.structs.replace(
            reserve,
            traits=envelope.traits,
            unknown=unknown,
            asker=asker,
            own_holders=policy.foreign_holders == "none",
        )

    async def _rooted(
        self, request: AdmissionRequest, reserve: Reserve, change: _Change, until: float
    ) -> Reserve | Denial | None:
        """Return the reservation with its root, None if another root is charged for the object.

        Without a reservation, settlement could not distinguish the object later from one that the
        controller made. So an object that requests nothing is refused if a user other than the
        controller writes it.
        """
        write, owner_chains, user = change.write, self._context.owner_chains, request.user_info
        meta = write.new.metadata
        if write.old is not None:
            denial = forged_owner_denial(owner_chains, meta, write.old.metadata, user)
            if denial is not None:
                return denial
            if self._context.recorded_root(reserve) == BARRED:
                return msgspec.structs.replace(reserve, root=BARRED)
        ownership = await ownership_of(owner_chains, request, meta, until)
        reserve = with_controller_as_owner(reserve, ownership.controller)
        if ownership.root is None:
            root = ownership.key if write.old is None else ""
            return msgspec.structs.replace(reserve, root=root)
        if ownership.key != BARRED or change.before.traits:
            return None
        if not change.envelope.demand:
            return wrong_creator_denial(meta, user)
        return msgspec.structs.replace(reserve, root=BARRED)

    async def _warn_only(self, reserve: Reserve, change: _Change, until: float) -> Verdict:
        """Reserve nothing, and warn if its pods could never run at the same time."""
        if change.is_more:
            denial = await self._reservations.dry_run(reserve, until)
            if denial is not None and denial.reason is Reason.EXCEEDS_LIMIT:
                warning = f"its pods can never run all at once: {brief(denial)}"
                return _warned(UNTOUCHED, reserve, (warning,))
        rollout = change.rollout(reserve)
        if rollout is None:
            return UNTOUCHED
        warnings = await self._rollouts.warnings(rollout, until, never=True)
        return _warned(UNTOUCHED, reserve, warnings)

    async def _reserve(
        self,
        request: AdmissionRequest,
        reserve: Reserve,
        change: _Change,
        policy: NamespacePolicy,
        until: float,
    ) -> Verdict:
        old, before = change.write.old, change.before
        rollout = change.rollout(reserve) if policy.surge != "reserve" else None
        if (
            policy.surge == "strict"
            and rollout is not None
            and not policy.may_exceed_limits(request.user_info)
        ):
            denial = await self._rollouts.stuck(rollout, until)
            if denial is not None:
                return Verdict(denial, denial.decision, reserve.namespace, reserve.key)
            rollout = None
        verdict = UNTOUCHED
        if change.is_more:
            known: tuple[Observe, ...] = ()
            if old is not None:
                known = self._base(reserve, old, before)
            verdict = await self._reservations.ask(
                ReservationRequest(request, policy, reserve, until, known)
            )
        if rollout is None or verdict.denial is not None:
            return verdict
        return _warned(verdict, reserve, await self._rollouts.warnings(rollout, until))

    def _base(self, reserve: Reserve, old: Workload, before: Envelope) -> tuple[Observe, ...]:
        """Return the observation of the object before an update.

        It is left out if it would lower the charge for resource claims that do not exist yet:
        another replica may have reserved for them a moment ago.
        """
        awaited = awaited_of(before.deferred, unresolved=before.unresolved)
        place, state = (reserve.namespace, reserve.key, reserve.uid), self._context.view.state
        demand = promised_demand(state, place, before.demand, (), awaited=awaited)
        if awaited.lowers(demand, before.demand):
            return ()
        return (base_observation(reserve, demand, before.traits, old.metadata.generation),)


def _warned(verdict: Verdict, reserve: Reserve, warnings: tuple[str, ...]) -> Verdict:
    """Return a verdict with further warnings; it names the object of the reservation."""
    if not warnings:
        return verdict
    if verdict is UNTOUCHED:
        verdict = Verdict(namespace=reserve.namespace, key=reserve.key)
    return msgspec.structs.replace(verdict, warnings=(*verdict.warnings, *warnings))
