"""Making room: a claim for a pod, and then the evictions of those that it names.

The intent is in the log before anybody is evicted: the claim keeps the cards for the pod while its
victims leave. Whoever is asked about the pod next goes on with its claim, also after a crash;
settlement withdraws it in the end.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from extender.bind.event_recorder import PREEMPTED, PREEMPTION_STARTED, EventRecorder
from extender.bind.placement_service import ACTOR, CATCH_UP_SECONDS
from extender.fit.inventory_fit import UNKNOWN, FitEngine
from extender.preemption.eviction_candidates import PreemptionCluster, is_leaving, priority_of
from extender.preemption.preemption_plan import preemption_plans
from extender.preemption.victims import Subject
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.model.cards import Claim, Parts
from ledger.core.model.commands import MakeRoom, Withdraw
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.errors import BudgetExhausted, Conflict, NotFound
from ledger.kube.api.objects import Pod
from ledger.kube.api.resources import PODS
from ledger.log.ledger import Ledger, StateView
from ledger.log.record_signal import RecordSignal
from ledger.runtime.counter_protocol import Count

FITS: Final = "fits"
"""What became of making room where there is some, or only guesses are in the way."""

_logger: Final = structlog.get_logger("extender.preemption.preemption_executor")


class PreemptionOutcome(NamedTuple):
    """What became of making room, in a word for metrics, and a node where it was no use."""

    outcome: str
    avoid: str = ""


class HeldClaim(NamedTuple):
    """A claim, and the node where it is, named as the ledger does."""

    node: str
    parts: Parts
    victims: tuple[Subject, ...]


class PreemptionExecutor:
    """Makes room for one pod of a cluster at a time."""

    def __init__(
        self,
        view: StateView,
        ledger: Ledger,
        cluster: PreemptionCluster,
        selecting: FitEngine,
        telling: EventRecorder,
        news: RecordSignal,
        clock: Callable[[], float],
        count: Count,
    ) -> None:
        """Claim cards through a ledger; `clock` is the time of the loop in seconds."""
        self._view, self._ledger, self._cluster = view, ledger, cluster
        self._selecting, self._telling, self._news = selecting, telling, news
        self._clock, self._count = clock, count

    async def make(
        self, asked: SchedulingRequest, nodes: Sequence[str], looked_at: Sequence[str]
    ) -> PreemptionOutcome:
        """Go on with what is claimed for a pod, or claim something on a node that is looked at.

        `nodes` are all that it could come to. Raises ClusterError.
        """
        pod = await self._cluster.get_pod(asked.pod.metadata.namespace, asked.pod.metadata.name)
        if not _waits(pod, asked.uid):
            return PreemptionOutcome("gone")
        known = self._standing(asked)
        if known is not None:
            # Claimed once more, it is stored for certain, and not only about to be.
            if not await self._claim(asked, known):
                return PreemptionOutcome("overtaken")
            return await self._evict(asked, known)
        if self._fits(asked, nodes):
            return PreemptionOutcome(FITS)
        made = await self._claim_cheapest(asked, looked_at)
        return await self._evict(asked, made) if made is not None else PreemptionOutcome("nowhere")

    def is_claimed_for(self, uid: str) -> bool:
        """Return whether cards are kept for the pod of a uid."""
        claims = self._view.state.claims.values()
        return any(claim.uid == uid for kept in claims for claim in kept)

    def _standing(self, asked: SchedulingRequest) -> HeldClaim | None:
        """Return what is kept for a pod."""
        for node, claims in self._view.state.claims.items():
            for claim in claims:
                if _is_for(claim, asked):
                    return HeldClaim(node, claim.parts, claim.victims)
        return None

    def _fits(self, asked: SchedulingRequest, nodes: Sequence[str]) -> bool:
        """Return whether the pod fits somewhere meanwhile, or only guesses are in its way."""
        rows = self._selecting.rows_among(nodes)
        with self._selecting.inventory.overlay.without_assumed():
            fits = self._selecting.fits(asked, rows[rows != UNKNOWN])
        return bool(fits.feasible.any())

    async def _claim_cheapest(
        self, asked: SchedulingRequest, nodes: Sequence[str]
    ) -> HeldClaim | None:
        """Claim what costs least and the ledger takes, unless somebody else was faster."""
        state = self._view.state
        for one in await preemption_plans(self._cluster, self._selecting, state, asked, nodes):
            wanted = HeldClaim(asked.of(one.node), one.parts, one.subjects())
            if self._standing(asked) is not None:
                break
            if await self._claim(asked, wanted):
                note = f"evicting {len(one.evicted)} pods of lower priority from node {one.node}"
                self._telling.tell(asked.pod, PREEMPTION_STARTED, note)
                return wanted
        return None

    async def _claim(self, asked: SchedulingRequest, wanted: HeldClaim) -> bool:
        """Have the ledger keep cards for a pod; return whether it does, and this replica knows."""
        who = asked.namespace, asked.key, asked.uid
        answer = await self._ledger.submit(MakeRoom(*who, *wanted, ACTOR))
        if isinstance(answer, Denial):
            _logger.info("no_room_claimed", pod=asked.key, reason=sentence(answer))
            return False
        until = self._clock() + CATCH_UP_SECONDS
        while self._view.state.position < answer.position and self._clock() < until:
            await self._news.wait(until - self._clock())
        return True

    async def _evict(self, asked: SchedulingRequest, claimed: HeldClaim) -> PreemptionOutcome:
        """Evict the victims of a claim that are there still, as long as it stands."""
        node = local_name(claimed.node)
        for subject in claimed.victims:
            if self._standing(asked) != claimed:
                return PreemptionOutcome("overtaken")
            pod = await self._victim(asked, subject)
            if pod is None:
                continue
            try:
                await self._cluster.evict(pod.metadata.namespace, pod.metadata.name, subject[2])
            except (NotFound, Conflict):
                continue  # it is gone, or another one has its name
            except BudgetExhausted as error:
                _logger.info("eviction_refused", pod=subject[1], reason=str(error))
                await self._withdraw(asked)
                return PreemptionOutcome("protected", node)
            self._tell_preempted(asked, pod, node)
        return PreemptionOutcome("evicted")

    async def _victim(self, asked: SchedulingRequest, subject: Subject) -> Pod | None:
        """Read a victim; None when it is gone, leaves already, or is more important."""
        namespace, key, uid = subject
        name = key.removeprefix(f"{PODS.name}/")
        pod = await self._cluster.get_pod(local_name(namespace), name)
        if pod is None or pod.metadata.uid != uid or is_leaving(pod):
            return None
        return pod if priority_of(pod) < priority_of(asked.pod) else None

    async def _withdraw(self, asked: SchedulingRequest) -> None:
        """Keep nothing for a pod; where the ledger does not take that, settlement does it."""
        who = asked.namespace, asked.key, asked.uid
        await self._ledger.submit(Withdraw(*who, Cause.PROTECTED, ACTOR))

    def _tell_preempted(self, asked: SchedulingRequest, pod: Pod, node: str) -> None:
        self._count("pods_preempted_total")
        by = f"pod {asked.uid} of priority {priority_of(asked.pod)}"
        self._telling.tell(pod, PREEMPTED, f"by {by}, for want of cards on node {node}")


def _is_for(claim: Claim, asked: SchedulingRequest) -> bool:
    return (claim.namespace, claim.key, claim.uid) == (asked.namespace, asked.key, asked.uid)


def _waits(pod: Pod | None, uid: str) -> bool:
    """Return whether the pod of a uid is still to be scheduled."""
    return (
        pod is not None
        and pod.metadata.uid == uid
        and not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
    )
