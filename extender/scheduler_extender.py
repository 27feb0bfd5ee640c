"""The scheduler extender: the verbs of kube-scheduler and the parts that they share.

Filter, select, prioritize and preempt only read the inventory; they write nothing, and a wrong
answer costs one try. Bind places the pod through the ledger. A problem is the answer's `Error`,
after which the scheduler tries the pod again later.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec

from extender.bind.bind_or_give_back import Binder
from extender.bind.binding_fence import FENCE_SECONDS
from extender.bind.place_or_choose_again import PlacementService
from extender.fit.inventory_fit import FitPreferences, InventoryFit
from extender.fit.quota_headroom import QuotaHeadroom
from extender.inventory.assumed_placements import AssumedPlacements
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.inventory_loading import until_loaded
from extender.preemption.preemption_events import EventRecorder
from extender.preemption.preemption_queue import PreemptionQueue
from extender.preemption.victim_eviction import VictimEvictor
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_api.extender_wire import (
    BindingArgs,
    BindingResult,
    ExtenderArgs,
    ExtenderUnavailable,
    FilterResult,
)
from extender.scheduler_api.scheduling_request import SchedulingRequests
from extender.verbs.filter_nodes import FILTER, SELECT, NodeFilter
from extender.verbs.filter_preemptions import PreemptionFilter
from extender.verbs.node_ranking import LaterNodes
from extender.verbs.prioritize_nodes import NodePrioritizer
from extender.verbs.scheduler_wakeup import SchedulerWakeUp
from ledger.log.state_change_signal import StateChangeSignal


class ExtenderSettings(msgspec.Struct, frozen=True):
    """Preferences and times in seconds.

    A bind waits at most `bind_wait_seconds`. It waits `fence_seconds` for the Binding of another
    extender before it fences that.
    """

    preferences: FitPreferences = FitPreferences()
    bind_wait_seconds: float = 20.0
    fence_seconds: float = FENCE_SECONDS


class Extender:
    """Answers about the pods of one cluster: `filter`, `select`, `prioritize`, `bind`, `preempt`.

    `run` must run for pods of lower priority to be evicted, and for the scheduler to be woken for
    pods that fit after all.
    """

    def __init__(
        self,
        inventory: ClusterInventory,
        ports: ExtenderPorts,
        *,
        settings: ExtenderSettings | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Answer from an inventory that the caller loads and keeps up to date.

        `now` is Unix time, `clock` the time of the loop, both in seconds.
        """
        settings = settings or ExtenderSettings()
        self.inventory = inventory
        self._ports = ports
        self._settings, self._clock = settings, clock
        self._signal = StateChangeSignal(ports.view)
        self._requests = SchedulingRequests(inventory.cluster, ports.rules)
        headroom = QuotaHeadroom(ports.view, ports.rules)
        self._fit = InventoryFit(inventory, settings.preferences, clock=clock, headroom=headroom)
        self._assumed = AssumedPlacements(
            inventory, clock=clock, publish=ports.publish, count=ports.count
        )
        self.placements = PlacementService(
            ports,
            fit=self._fit,
            assumed=self._assumed,
            signal=self._signal,
            clock=clock,
            fence_seconds=settings.fence_seconds,
        )
        self._recorder = EventRecorder(ports.evicting, ports.count) if ports.evicting else None
        self._binder = self._make_binder(now)
        self._preemptions, self.wakeup = self._preemption_queue(), self._make_wakeup(now)
        later = LaterNodes(self._fit, self._assumed)
        self._filter = self._make_filter(later)
        preemption_filter = PreemptionFilter(
            ports, requests=self._requests, fit=self._fit, clock=clock
        )
        self.prioritize = self._make_prioritizer(later).prioritize
        self.bind = self._binder.bind if self._binder is not None else self._refuse_bind
        self.preempt = preemption_filter.preempt

    async def run(self) -> None:
        """Wake the scheduler, and evict and record that where it is allowed, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._recorder is not None:
                tasks.create_task(self._recorder.run())
            if self._preemptions is not None:
                tasks.create_task(self._preemptions.run())
            if self.wakeup is not None:
                tasks.create_task(self.wakeup.run())

    async def filter(self, args: ExtenderArgs) -> FilterResult:
        """Return the nodes on which a pod fits; the scheduler is woken later if it fits nowhere.

        Raises BadRequest.
        """
        return await self._answer(args, FILTER)

    async def select(self, args: ExtenderArgs) -> FilterResult:
        """Return the best nodes of those that `filter` returns, so that prioritize is not needed.

        Raises BadRequest.
        """
        return await self._answer(args, SELECT)

    async def _answer(self, args: ExtenderArgs, verb: str) -> FilterResult:
        answer = await self._filter.answer(args, verb)
        if self.wakeup is not None and args.pod is not None:
            self.wakeup.answered(args.pod, answer)
        return answer

    def receive(self, hint: bytes) -> None:
        """Take over an assumed placement of another extender."""
        if self.inventory.loaded:
            self._assumed.receive(hint)

    async def _refuse_bind(self, _: BindingArgs) -> BindingResult:
        """Refuse to bind, because there is no cluster to bind in."""
        problem = "no cluster is configured: no pod can be bound"
        try:
            await until_loaded(self.inventory, self._clock)
        except ExtenderUnavailable as error:
            problem = str(error)
        self._ports.count("extender_answers_total", "bind", "unavailable")
        return BindingResult(problem)

    def _make_filter(self, later: LaterNodes) -> NodeFilter:
        return NodeFilter(
            self._ports,
            requests=self._requests,
            fit=self._fit,
            assumed=self._assumed,
            later=later,
            preemptions=self._preemptions,
            signal=self._signal,
            clock=self._clock,
        )

    def _make_prioritizer(self, later: LaterNodes) -> NodePrioritizer:
        return NodePrioritizer(
            requests=self._requests,
            fit=self._fit,
            assumed=self._assumed,
            later=later,
            filtered=self._filter.answers,
            clock=self._clock,
            count=self._ports.count,
        )

    def _make_binder(self, now: Callable[[], float]) -> Binder | None:
        if self._ports.cluster is None:
            return None
        return Binder(
            self._ports,
            self._ports.cluster,
            requests=self._requests,
            placements=self.placements,
            signal=self._signal,
            wait_seconds=self._settings.bind_wait_seconds,
            now=now,
        )

    def _make_wakeup(self, now: Callable[[], float]) -> SchedulerWakeUp | None:
        if self._ports.cluster is None:
            return None
        return SchedulerWakeUp(
            self._ports,
            self._ports.cluster,
            requests=self._requests,
            fit=self._fit,
            now=now,
            clock=self._clock,
        )

    def _preemption_queue(self) -> PreemptionQueue | None:
        if self._ports.evicting is None or self._recorder is None:
            return None
        executor = VictimEvictor(
            self._ports,
            self._ports.evicting,
            fit=self._fit,
            recorder=self._recorder,
            signal=self._signal,
            clock=self._clock,
        )
        return PreemptionQueue(executor, clock=self._clock, count=self._ports.count)
