"""Victim eviction: claims the cards for a pod, and then evicts the victims, in which order.

The claim is in the log before any pod is evicted: it keeps the cards for the pod while its victims
end. The next try for the pod goes on with its claim, also after a crash. At the latest, settlement
withdraws the claim after `claim_seconds`.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from extender.bind.place_or_choose_again import ACTOR, CATCH_UP_SECONDS
from extender.fit.inventory_fit import UNKNOWN, InventoryFit
from extender.preemption.eviction_candidates import is_leaving, priority_of
from extender.preemption.preemption_events import PREEMPTED, PREEMPTION_STARTED, EventRecorder
from extender.preemption.preemption_plan import PreemptionPlan, preemption_plans
from extender.preemption.victim_choice import Subject
from extender.scheduler_api.extender_ports import ExtenderPorts, PreemptionCluster
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.model.cards import Parts, PreemptionClaim
from ledger.core.model.commands import MakeRoom, Withdraw
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.api_resources import PODS
from ledger.kube.api.cluster_errors import BudgetExhausted, NotFound, VersionConflict
from ledger.kube.api.objects import Pod
from ledger.log.state_change_signal import StateChangeSignal

FITS: Final = "fits"
"""The outcome if the pod fits, or if only assumed placements are in its way."""

_log: Final = structlog.get_logger("extender")


class PreemptionOutcome(NamedTuple):
    """The outcome of a preemption, one word for metrics, and a node where it could not help."""

    outcome: str
    avoid: str = ""


class HeldClaim(NamedTuple):
    """A claim and its node, by the qualified name."""

    node: str
    parts: Parts
    victims: tuple[Subject, ...]


class VictimEvictor:
    """Preempts for one pod of a cluster at a time."""

    def __init__(
        self,
        ports: ExtenderPorts,
        cluster: PreemptionCluster,
        *,
        fit: InventoryFit,
        recorder: EventRecorder,
        signal: StateChangeSignal,
        clock: Callable[[], float],
    ) -> None:
        """Evict in a cluster; `clock` is the time of the loop in seconds."""
        self._ports, self._cluster, self._fit = ports, cluster, fit
        self._recorder, self._signal, self._clock = recorder, signal, clock

    async def make(
        self, request: SchedulingRequest, nodes: Sequence[str], chosen: Sequence[str]
    ) -> PreemptionOutcome:
        """Go on with the claim of a pod, or claim cards on one of the `chosen` nodes.

        `nodes` are all nodes where the pod could fit. Raises ClusterError.
        """
        pod = await self._cluster.get_pod(request.pod.metadata.namespace, request.pod.metadata.name)
        if not _waits(pod, request.uid):
            return PreemptionOutcome("gone")
        known = self._standing(request)
        if known is not None:
            # Claimed once more, because the claim in the state may not be stored yet.
            if not await self._claim(request, known):
                return PreemptionOutcome("overtaken")
            return await self._evict(request, known)
        if self._fits(request, nodes):
            return PreemptionOutcome(FITS)
        made = await self._claim_cheapest(request, chosen)
        return (
            await self._evict(request, made) if made is not None else PreemptionOutcome("nowhere")
        )

    def is_claimed_for(self, uid: str) -> bool:
        """Return whether cards are kept for the pod of a uid."""
        claims = self._ports.view.state.claims.values()
        return any(claim.uid == uid for kept in claims for claim in kept)

    def _standing(self, request: SchedulingRequest) -> HeldClaim | None:
        """Return the claim of a pod, None if it has none."""
        for node, claims in self._ports.view.state.claims.items():
            for claim in claims:
                if _is_for(claim, request):
                    return HeldClaim(node, claim.parts, claim.victims)
        return None

    def _fits(self, request: SchedulingRequest, nodes: Sequence[str]) -> bool:
        """Return whether the pod fits now, or only assumed placements are in its way."""
        rows = self._fit.rows_of(nodes)
        with self._fit.inventory.overlay.without_assumed():
            fits = self._fit.fits(request, rows[rows != UNKNOWN])
        return bool(fits.feasible.any())

    async def _claim_cheapest(
        self, request: SchedulingRequest, nodes: Sequence[str]
    ) -> HeldClaim | None:
        """Claim by the cheapest plan that the ledger accepts, unless another claim was faster."""
        state = self._ports.view.state
        for plan in await preemption_plans(self._cluster, self._fit, state, request, nodes):
            wanted = HeldClaim(
                f"{request.cluster}/{plan.node}", plan.parts, _in_order_of_eviction(plan)
            )
            if self._standing(request) is not None:
                break
            if await self._claim(request, wanted):
                note = f"evicting {len(plan.evicted)} pods of lower priority from node {plan.node}"
                self._recorder.record(request.pod, PREEMPTION_STARTED, note)
                return wanted
        return None

    async def _claim(self, request: SchedulingRequest, wanted: HeldClaim) -> bool:
        """Claim cards for a pod; return whether the ledger accepted and this replica applied it."""
        who = request.namespace, request.key, request.uid
        answer = await self._ports.ledger.submit(MakeRoom(*who, *wanted, ACTOR))
        if isinstance(answer, Denial):
            _log.info("no_room_claimed", pod=request.key, reason=sentence(answer))
            return False
        until = self._clock() + CATCH_UP_SECONDS
        while self._ports.view.state.position < answer.position and self._clock() < until:
            await self._signal.wait(until - self._clock())
        return True

    async def _evict(self, request: SchedulingRequest, claimed: HeldClaim) -> PreemptionOutcome:
        """Evict the remaining victims of a claim, as long as the claim exists."""
        node = local_name(claimed.node)
        for subject in claimed.victims:
            if self._standing(request) != claimed:
                return PreemptionOutcome("overtaken")
            pod = await self._victim(request, subject)
            if pod is None:
                continue
            try:
                await self._cluster.evict(pod.metadata.namespace, pod.metadata.name, subject[2])
            except (NotFound, VersionConflict):
                continue  # it is gone, or another one has its name
            except BudgetExhausted as error:
                _log.info("eviction_refused", pod=subject[1], reason=str(error))
                await self._withdraw(request)
                return PreemptionOutcome("protected", node)
            self._report_preempted(request, pod, node)
        return PreemptionOutcome("evicted")

    async def _victim(self, request: SchedulingRequest, subject: Subject) -> Pod | None:
        """Read a victim; None if it is gone, is ending, or has no lower priority."""
        namespace, key, uid = subject
        name = key.removeprefix(f"{PODS.name}/")
        pod = await self._cluster.get_pod(local_name(namespace), name)
        if pod is None or pod.metadata.uid != uid or is_leaving(pod):
            return None
        return pod if priority_of(pod) < priority_of(request.pod) else None

    async def _withdraw(self, request: SchedulingRequest) -> None:
        """Withdraw the claim of a pod; if the ledger refuses that, settlement repeats it."""
        who = request.namespace, request.key, request.uid
        await self._ports.ledger.submit(Withdraw(*who, Cause.PROTECTED, ACTOR))

    def _report_preempted(self, request: SchedulingRequest, pod: Pod, node: str) -> None:
        self._ports.count("pods_preempted_total")
        by = f"pod {request.uid} of priority {priority_of(request.pod)}"
        self._recorder.record(pod, PREEMPTED, f"by {by}, for want of cards on node {node}")


def _in_order_of_eviction(plan: PreemptionPlan) -> tuple[Subject, ...]:
    """Return all victims of a plan, those that a budget protects first.

    If the API server refuses to evict one of these, no other pod has been evicted for nothing.
    """
    ordered = sorted(plan.evicted, key=lambda victim: not victim.budgets)
    return (*(victim.subject for victim in ordered), *plan.leaving)


def _is_for(claim: PreemptionClaim, request: SchedulingRequest) -> bool:
    return (claim.namespace, claim.key, claim.uid) == (request.namespace, request.key, request.uid)


def _waits(pod: Pod | None, uid: str) -> bool:
    """Return whether the pod of a uid is still to be scheduled."""
    return (
        pod is not None
        and pod.metadata.uid == uid
        and not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
    )
