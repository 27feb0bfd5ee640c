"""Settlement of cards: nodes, placements and claims of one cluster, while this replica is active.

It has no watch of pods of its own: who settles quotas has one and passes on what it tells.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from extender.settlement import node_locks
from extender.settlement.allocation_annotations import AllocationAnnotations
from extender.settlement.card_session import CardSettings, CardSettlementSession
from extender.settlement.node_informer import NodeInformer
from extender.settlement.node_locks import NodeLockCleaner
from extender.settlement.node_reader import NodeRules
from extender.settlement.node_registration import ANNOUNCED_BYTES_PER_SECOND, NodeRegistration
from extender.settlement.placement_reconciler import PlacementReconciler
from extender.settlement.preemption_claim_expiry import ClaimExpiry
from extender.settlement.unbound_placements import UnboundPlacements
from ledger.kube.api import ports
from ledger.kube.api.objects import Pod
from ledger.kube.api.ports import Change, Listed
from ledger.kube.watch.failed_objects import FailedObjects
from ledger.log.command_queue import CommandQueue
from ledger.log.ledger import StateView
from ledger.log.records import Record
from ledger.runtime.counter_protocol import Count, uncounted
from ledger.tasks.periodic import run_periodically

TICK_SECONDS: Final = 1.0
"""How often placements and claims are looked at, less when their bound is short."""

TOLD_MAX: Final = 3
"""Pods that a warning names, of all whose cards are not known."""


class CardCluster(ports.NodeWatches, ports.AllocationApi, Protocol):
    """A cluster's nodes, to be followed, and what placing and resizing write."""


class CardSettlementTasks:
    """What is settled of cards in one session."""

    def __init__(self, session: CardSettlementSession, nodes: NodeInformer) -> None:
        """Prepare; `run` does the work, and `running` says whether it does."""
        self.running = False
        self.allocations = AllocationAnnotations(session)
        self.placements = PlacementReconciler(session, self.allocations)
        self._locks = NodeLockCleaner(session, nodes)
        self.unbound = UnboundPlacements(session, self._locks)
        self._session = session
        self._claims = ClaimExpiry(session)
        self.registering = NodeRegistration(session, nodes)

    async def run(self) -> None:
        """Settle until cancelled."""
        settings = self._session.settings
        tick = min(TICK_SECONDS, settings.settle_seconds / 4, settings.claim_seconds / 4)
        self.running = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.registering.run())
                tasks.create_task(self.unbound.find())
                tasks.create_task(run_periodically(node_locks.LOOK_SECONDS, self._locks.settle))
                for action in (
                    self.placements.look_again,
                    self.unbound.settle,
                    self._claims.settle,
                    self.allocations.settle,
                ):
                    tasks.create_task(run_periodically(tick, action))
        finally:
            self.running = False

    async def take(self, change: Change[Pod]) -> None:
        """Take in what the watch of pods tells, after the ledger was told of it."""
        await self.placements.take(change)
        if isinstance(change, Listed):
            await self.unbound.find()

    def follow(self, record: Record, now: float) -> None:
        """Take note of a record, at `now` seconds of the loop's clock."""
        for item in record.items:
            event = item.event
            about = getattr(event, "namespace", "") or getattr(event, "node", "")
            if self._session.owns(about):
                self.placements.follow(event)
                self.allocations.follow(event)
                self.unbound.follow(event, now)
                self.registering.follow(event)


class CardSettlement:
    """Settles the cards of one cluster. `nodes` are followed in every replica, by `run`."""

    def __init__(
        self,
        view: StateView,
        cluster: CardCluster,
        *,
        name: str,
        now: Callable[[], int],
        settings: CardSettings | None = None,
        rules: NodeRules | None = None,
        count: Count = uncounted,
    ) -> None:
        """`name` is the cluster's in the ledger; `now` tells µs of Unix time."""
        self.nodes = NodeInformer(cluster, rules or NodeRules(), failures=FailedObjects(count))
        self._view, self._cluster, self._name = view, cluster, name
        self._now, self._count = now, count
        self._settings = settings or CardSettings()
        self._tasks: CardSettlementTasks | None = None
        view.subscribe(self._follow)

    async def run(self) -> None:
        """Follow the nodes until cancelled."""
        await self.nodes.run()

    @property
    def unbound(self) -> int:
        """How many placements are not known to be bound; 0 while this replica is not active."""
        duties = self._running()
        return len(duties.unbound) if duties is not None else 0

    @property
    def astray(self) -> int:
        """How many pods run on cards that are not known; 0 while this replica is not active."""
        duties = self._running()
        return len(duties.placements.astray) if duties is not None else 0

    def warnings(self) -> list[str]:
        """Return what keeps the cards of nodes and the places of pods from being known."""
        found, duties = self.nodes.warnings(), self._running()
        held = sorted(duties.registering.held) if duties is not None else []
        for name in held[:TOLD_MAX]:
            found.append(
                f"node {name}: its announcements change too often, and"
                f" {ANNOUNCED_BYTES_PER_SECOND} bytes of them are recorded per second:"
                " look at the device plugin there"
            )
        astray = duties.placements.astray if duties is not None else {}
        for one in islice(astray.values(), TOLD_MAX):
            meta = one.pod.metadata
            found.append(f"pod {meta.namespace}/{meta.name} is not charged on cards: {one.reason}")
        more = len(astray) - TOLD_MAX
        return [*found, f"and {more} more pods are not charged on cards"] if more > 0 else found

    def begin(self, commands: CommandQueue) -> CardSettlementTasks:
        """Begin a session, whose commands this commands brings to the ledger."""
        session = CardSettlementSession(
            self._view, self._cluster, self._name, self._settings, self._now, commands, self._count
        )
        self._tasks = CardSettlementTasks(session, self.nodes)
        return self._tasks

    def _running(self) -> CardSettlementTasks | None:
        duties = self._tasks
        return duties if duties is not None and duties.running else None

    def _follow(self, record: Record) -> None:
        duties = self._running()
        if duties is not None:
            duties.follow(record, asyncio.get_running_loop().time())
