"""The extender: what kube-scheduler asks, answered from the inventory and decided by the ledger.

Filter and prioritize only look; they write nothing, and being wrong costs a try. Bind is the one
that places. Whatever is wrong is said in the answer's `Error`, on which the scheduler tries the pod
again later.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from extender.bind.binder import Binder, BindResult, ClusterWrites
from extender.bind.binding_attempt import BindingWriter
from extender.bind.binding_fence import BindingFence
from extender.bind.event_recorder import (
    BINDING_FAILED,
    BINDING_SUCCEED,
    FILTERING_FAILED,
    EventRecorder,
)
from extender.bind.hami_node_lock import HamiNodeLock
from extender.bind.placement_service import FENCE_SECONDS, PlacementService
from extender.fit import after_eviction
from extender.fit.fit_nodes import chosen_parts
from extender.fit.inventory_fit import FitEngine, FitPreferences, QuotaHeadroom
from extender.inventory.assumed_placements import (
    ASSUMED_SECONDS,
    AssumedPlacements,
    Publish,
    unpublished,
)
from extender.inventory.inventory import ClusterInventory
from extender.preemption.eviction_candidates import PreemptionCluster as Evicting
from extender.preemption.preemption_executor import PreemptionExecutor
from extender.preemption.preemptor import Preemptor
from extender.scheduler_api.extender_wire import (
    SCORE_MAX,
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    FilterResult,
    HostPriority,
    MetaVictims,
    PreemptionArgs,
    PreemptionResult,
)
from extender.scheduler_api.scheduling_request import (
    FITS_MAX,
    PODS_MAX,
    BoundedCache,
    FilteredNodes,
    SchedulingRequest,
    request_for,
)
from extender.verbs import filter_nodes
from extender.verbs.filter_nodes import Candidates, Verdicts
from extender.verbs.filter_wait import FilterWaitBudget
from extender.verbs.prioritize_nodes import prioritized
from ledger.core.decide.card_checks import residents
from ledger.core.model.cards import Placement
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.errors import ClusterError
from ledger.kube.api.objects import Pod
from ledger.kube.api.ports import BindingApi
from ledger.kube.hami import annotation_names
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_request_parser import device_request_of
from ledger.log.ledger import Ledger, StateView
from ledger.log.record_signal import RecordSignal
from ledger.runtime.counter_protocol import Count, uncounted

READY_SECONDS: Final = 5.0
"""How long a request waits for the log to be open."""

LOOK_AGAIN_SECONDS: Final = 0.1
"""Pause between news and a look at all nodes: in a busy ledger there are many records a second."""

REASONS_TOLD_MAX: Final = 5
"""Reasons that an event sums up; the most frequent ones."""


class ExtenderSettings(msgspec.Struct, frozen=True):
    """Preferences, and seconds: `bind_wait_seconds` is how long a bind may wait at most,
    `fence_seconds` how long it waits for another extender's Binding before it fences that.
    """

    preferences: FitPreferences = FitPreferences()
    bind_wait_seconds: float = 20.0
    fence_seconds: float = FENCE_SECONDS


class ExtenderPorts(msgspec.Struct, frozen=True):
    """What the extender decides and writes through.

    Without a `cluster` it binds nothing, and it evicts pods in `evicting` alone. Where its pods
    are on their way to it tells the other extenders by `tell`, whose hints it is to `hear`.
    """

    ledger: Ledger
    view: StateView
    cluster: BindingApi | None
    rules: Callable[[], DemandRules]
    count: Count = uncounted
    evicting: Evicting | None = None
    tell: Publish = unpublished


class ExtenderUnavailable(Exception):
    """The question cannot be answered now; the message says why."""


class Extender:
    """Answers about the pods of one cluster.

    `run` has to run for events to be told, and for less important pods to be evicted.
    """

    def __init__(
        self,
        inventory: ClusterInventory,
        service: ExtenderPorts,
        settings: ExtenderSettings | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Answer from an inventory, which somebody loads and keeps up to date.

        `now` is Unix time, `clock` the time of the loop, both in seconds.
        """
        settings = settings or ExtenderSettings()
        self.inventory = inventory
        self._service, self._settings, self._clock = service, settings, clock
        rooms = QuotaHeadroom(service.view, service.rules)
        self._selecting = FitEngine(inventory, settings.preferences, clock, rooms)
        self._guessing = AssumedPlacements(inventory, clock, service.tell, service.count)
        self._news = RecordSignal(service.view)
        self._proposing = PlacementService(
            service.ledger,
            service.view,
            self._selecting,
            self._guessing,
            self._news,
            service.rules,
            clock,
            settings.fence_seconds,
        )
        self._binding, self._telling = self._writing(service.cluster, now)
        self._preemption = self._evicting(service.evicting)
        self._pods: BoundedCache[SchedulingRequest] = BoundedCache(PODS_MAX)
        self._fits: BoundedCache[FilteredNodes] = BoundedCache(FITS_MAX)
        self._patience = FilterWaitBudget(clock())
        self._being_bound: set[str] = set()

    async def run(self) -> None:
        """Tell events, and make room where that is allowed, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._telling is not None:
                tasks.create_task(self._telling.run())
            if self._preemption is not None:
                tasks.create_task(self._preemption.run())

    def hear(self, hint: bytes) -> None:
        """Take note of what another extender is about to do."""
        if self.inventory.loaded:
            self._guessing.hear(hint)

    async def filter(self, args: ExtenderArgs) -> FilterResult:
        """Return on which nodes a pod fits, and why not on the others. Raises BadRequest."""
        found = filter_nodes.candidates(args)
        try:
            await self._ready()
        except ExtenderUnavailable as error:
            return FilterResult(error=str(error))
        assert args.pod is not None, "what has no pod was refused"
        verdicts = await self._judged_when_freed(args.pod, found)
        if not any(verdicts.passed):
            self._tell_nowhere(args.pod, verdicts)
        self._count("filter", "fits" if any(verdicts.passed) else "nowhere")
        return filter_nodes.result(args, found, verdicts)

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """Return how good each node is for a pod. Raises BadRequest and Unavailable."""
        found = filter_nodes.candidates(args)
        await self._ready()
        assert args.pod is not None, "what has no pod was refused"
        who = self._asked(args.pod)
        if isinstance(who, Denial) or not who.wish.wants_cards():
            return [HostPriority(name, 0) for name in found.names]
        fitted = self._fits.pop(who.uid)
        if fitted is None:
            _, fitted = filter_nodes.filtered(self._selecting, who, found)
        later = self._selecting.busy(who, fitted.fits.rows)
        if self._guessing.contested():
            later |= self._selecting.tight(who, fitted.fits)
        priorities = prioritized(fitted, later, found)
        self._guess(who, fitted, priorities)
        self._count("prioritize", "scored")
        return priorities

    async def bind(self, args: BindingArgs) -> BindingResult:
        """Bind a pod to a node; the answer says why not."""
        until = self._clock() + self._settings.bind_wait_seconds
        try:
            await self._ready()
            who = await self._to_bind(args)
            bound = await self._bind(who, args.node, until)
        except ExtenderUnavailable as error:
            bound = BindResult("unavailable", str(error))
        self._count("bind", bound.outcome)
        return BindingResult(bound.problem)

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        """Return where evicting what the scheduler would evict makes room. Raises Unavailable."""
        await self._ready()
        nominated = after_eviction.nominated(args)
        assert args.pod is not None, "what has no pod was refused"
        who = self._asked(args.pod)
        if isinstance(who, Denial):
            return PreemptionResult()
        if not who.wish.wants_cards():
            return PreemptionResult(nominated)
        found = {
            node: victims
            for node, victims in nominated.items()
            if after_eviction.fits_after(
                self._selecting, who, node, self._leaving(who, node, victims)
            )
        }
        self._count("preempt", "fits" if found else "nowhere")
        return PreemptionResult(found)

    def _leaving(self, who: SchedulingRequest, node: str, victims: MetaVictims) -> list[Placement]:
        """Return the placements of victims on a node."""
        uids = {one.uid for one in victims.pods or ()}
        there = residents(self._service.view.state, who.of(node))
        return [placed for _, _, placed in there if placed.uid in uids]

    async def _bind(self, who: SchedulingRequest, node: str, until: float) -> BindResult:
        if self._binding is None:
            raise ExtenderUnavailable("no cluster is configured: there is nobody to bind pods")
        if who.pod.spec.node_name == node:
            return BindResult("bound")
        if who.uid in self._being_bound:
            raise ExtenderUnavailable(f"{who.key} is being bound already")
        self._being_bound.add(who.uid)
        try:
            bound = await self._binding.bind(who, node, until, self._again)
        finally:
            self._being_bound.discard(who.uid)
        if not bound.problem:
            self._pods.pop(who.uid)
        self._tell_bound(who.pod, node, bound)
        return bound

    async def _to_bind(self, args: BindingArgs) -> SchedulingRequest:
        """Return the pod to be bound: as it was filtered, or else as it is."""
        known = self._pods.get(args.pod_uid)
        if known is not None:
            return known
        if self._service.cluster is None:
            raise ExtenderUnavailable(
                "no cluster is configured: there is nobody to ask for the pod"
            )
        try:
            pod = await self._service.cluster.get_pod(args.pod_namespace, args.pod_name)
        except ClusterError as error:
            raise ExtenderUnavailable(f"the pod cannot be read: {error}") from error
        if pod is None or (args.pod_uid and pod.metadata.uid != args.pod_uid):
            raise ExtenderUnavailable(f"pod {args.pod_namespace}/{args.pod_name} is gone")
        who = self._asked(pod)
        if isinstance(who, Denial):
            raise ExtenderUnavailable(sentence(who))
        return who

    def _again(self, pod: Pod) -> SchedulingRequest | None:
        who = self._asked(pod)
        return None if isinstance(who, Denial) else who

    def _asked(self, pod: Pod) -> SchedulingRequest | Denial:
        """Read what a pod wants, and remember it for its bind."""
        wish = device_request_of(pod, self._service.rules())
        if isinstance(wish, Denial):
            return wish
        # Nodes announce no cards of the other vendors: the scheduler itself counts those.
        who = request_for(pod, wish.among(annotation_names.WORDS), self.inventory.cluster)
        self._pods.put(who.uid, who)
        return who

    async def _judged_when_freed(self, pod: Pod, found: Candidates) -> Verdicts:
        """Judge a pod; one that may have room in a moment again, soon after the ledger moves on."""
        verdicts, begun = self._judged(pod, found), self._clock()
        if any(verdicts.passed):
            return verdicts
        uid = pod.metadata.uid
        until = begun + self._patience.of(uid, begun, is_claimed=self._is_claimed_for(uid))
        while not any(verdicts.passed) and (left := until - self._clock()) > 0:
            await self._news.wait(left)
            await asyncio.sleep(max(0.0, min(LOOK_AGAIN_SECONDS, until - self._clock())))
            verdicts = self._judged(pod, found)
        return verdicts

    def _is_claimed_for(self, uid: str) -> bool:
        return self._preemption is not None and self._preemption.is_claimed_for(uid)

    def _judged(self, pod: Pod, found: Candidates) -> Verdicts:
        who = self._asked(pod)
        if isinstance(who, Denial):
            return filter_nodes.nowhere(found, who)
        if not who.wish.wants_cards():
            return filter_nodes.everywhere(found)
        placed = self._proposing.standing(who)
        if placed is not None:
            return filter_nodes.only(found, local_name(placed.node))
        verdicts, fitted = filter_nodes.filtered(self._selecting, who, found)
        passed = sum(verdicts.passed)
        if passed == 0 and self._preemption is not None:
            self._preemption.want(who, list(verdicts.failed))
        if passed == 1:
            # It goes there: nobody asks which node is the best one.
            self._guess_on(who, fitted, found.names[verdicts.passed.index(True)])
        if passed > 1:
            self._fits.put(who.uid, fitted)
        return verdicts

    def _guess(
        self, who: SchedulingRequest, fitted: FilteredNodes, priorities: list[HostPriority]
    ) -> None:
        """Take the pod to be on its way to the best node: the scheduler adds scores of its own."""
        best = next((one for one in priorities if one.score == SCORE_MAX), None)
        if best is not None:
            self._guess_on(who, fitted, best.host)

    def _guess_on(self, who: SchedulingRequest, fitted: FilteredNodes, node: str) -> None:
        place = fitted.names.index(node)
        if place >= len(fitted.fits.rows):
            return
        parts = chosen_parts(fitted.fits, place, self.inventory.arrays, who.wish)
        self._guessing.guess(who, node, parts, ASSUMED_SECONDS)

    async def _ready(self) -> None:
        """Wait until the cards are known. Raises Unavailable."""
        until = self._clock() + READY_SECONDS
        while not self.inventory.loaded:
            left = until - self._clock()
            if left <= 0:
                raise ExtenderUnavailable(
                    "the log is not open yet: the cards of the nodes are not known"
                )
            await asyncio.sleep(min(left, 0.1))

    def _tell_nowhere(self, pod: Pod, verdicts: Verdicts) -> None:
        if self._telling is None:
            return
        reasons = [*verdicts.failed.values(), *verdicts.unresolvable.values()]
        counted = Counter(reasons).most_common(REASONS_TOLD_MAX)
        summed = "; ".join(f"{many} nodes: {reason}" for reason, many in counted)
        note = f"no available node, {len(reasons)} nodes do not meet: {summed}"
        self._telling.tell(pod, FILTERING_FAILED, note, warning=True)

    def _tell_bound(self, pod: Pod, node: str, bound: BindResult) -> None:
        if self._telling is None:
            return
        if bound.problem:
            self._telling.tell(pod, BINDING_FAILED, f"node {node}: {bound.problem}", warning=True)
        else:
            self._telling.tell(pod, BINDING_SUCCEED, f"bound to node {node} with its cards")

    def _count(self, verb: str, outcome: str) -> None:
        self._service.count("extender_answers_total", verb, outcome)

    def _writing(
        self, cluster: BindingApi | None, now: Callable[[], float]
    ) -> tuple[Binder | None, EventRecorder | None]:
        if cluster is None:
            return None, None
        writes = ClusterWrites(
            BindingWriter(cluster), HamiNodeLock(cluster, now), BindingFence(cluster)
        )
        binding = Binder(self._service.view, self._proposing, writes, self._news, self._clock, now)
        return binding, EventRecorder(cluster, self._service.count)

    def _evicting(self, cluster: Evicting | None) -> Preemptor | None:
        if cluster is None or self._telling is None:
            return None
        making = PreemptionExecutor(
            self._service.view,
            self._service.ledger,
            cluster,
            self._selecting,
            self._telling,
            self._news,
            self._clock,
            self._service.count,
        )
        return Preemptor(making, self._clock, self._service.count)
