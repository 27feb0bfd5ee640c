"""Active card reconcilers: those of nodes, placements, claims and locks, on the active replica.

They do not watch pods. `webhook/settlement` passes each change of a pod on to them, after it has
sent the command for the quotas.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from extender.settlement.allocated_devices import card_overlap
from extender.settlement.allocated_devices.card_overlap import CardOverlaps
from extender.settlement.allocated_devices.device_placements import DevicePlacements
from extender.settlement.allocated_devices.offered_cards import OfferedCards
from extender.settlement.allocation_annotations import AllocationAnnotations
from extender.settlement.card_reconciler_context import CardReconcilerContext, CardSettings
from extender.settlement.hami import stale_node_locks
from extender.settlement.hami.stale_node_locks import NodeLockCleaner
from extender.settlement.node_card_health import NodeRules
from extender.settlement.node_informer import NodeInformer
from extender.settlement.node_registration import ANNOUNCED_BYTES_PER_SECOND, NodeRegistration
from extender.settlement.placement_reconciler import PlacementReconciler
from extender.settlement.preemption_claim_expiry import ClaimExpiry
from extender.settlement.unbound_placements import UnboundPlacements
from ledger.kube.api import cluster_ports
from ledger.kube.api.cluster_ports import Change, Listed
from ledger.kube.api.objects import Pod
from ledger.kube.watch.failed_objects import FailedObjects
from ledger.log.command_delivery import CommandQueue
from ledger.log.ledger_port import StateView
from ledger.log.records import Record
from ledger.runtime.counter_protocol import Count, uncounted
from ledger.tasks.periodic import run_periodically

TICK_SECONDS: Final = 1.0
"""How often placements and claims are checked, at most; more often if their bounds are short."""

NAMED_MAX: Final = 3
"""Unaccounted pods that a warning names."""


class CardCluster(cluster_ports.NodeWatches, cluster_ports.AllocationApi, Protocol):
    """A cluster whose nodes are followed and whose pods and nodes are annotated."""


class CardReconcilers:
    """The reconcilers of one cluster, as long as this replica is active."""

    def __init__(
        self, context: CardReconcilerContext, *, nodes: NodeInformer, offered: OfferedCards
    ) -> None:
        """Prepare; `run` does the work, and `running` is true while it does."""
        self.running = False
        self.allocations = AllocationAnnotations(context)
        self.placements = PlacementReconciler(context, self.allocations)
        self.devices = DevicePlacements(context)
        self.overlaps = CardOverlaps(context, offered)
        self._locks = NodeLockCleaner(context, nodes)
        self.unbound = UnboundPlacements(context, self._locks)
        self._context = context
        self._claims = ClaimExpiry(context)
        self.registering = NodeRegistration(context, nodes)

    async def run(self) -> None:
        """Settle until cancelled."""
        settings = self._context.settings
        tick = min(TICK_SECONDS, settings.settle_seconds / 4, settings.claim_seconds / 4)
        self.running = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.registering.run())
                tasks.create_task(self.unbound.find())
                tasks.create_task(self.devices.find())
                tasks.create_task(run_periodically(card_overlap.LOOK_SECONDS, self.overlaps.look))
                tasks.create_task(
                    run_periodically(stale_node_locks.LOOK_SECONDS, self._locks.settle)
                )
                for action in (
                    self.placements.look_again,
                    self.unbound.settle,
                    self._claims.settle,
                    self.allocations.settle,
                    self.devices.settle,
                ):
                    tasks.create_task(run_periodically(tick, action))
        finally:
            self.running = False

    async def take(self, change: Change[Pod]) -> None:
        """Settle a change of a pod, after its command for the quotas was sent."""
        await self.placements.take(change)
        if isinstance(change, Listed):
            await self.unbound.find()

    def follow(self, record: Record, now: float) -> None:
        """Apply a record of the log, at loop time `now` in seconds."""
        for item in record.items:
            event = item.event
            about = getattr(event, "namespace", "") or getattr(event, "node", "")
            if self._context.owns(about):
                self.placements.follow(event)
                self.allocations.follow(event)
                self.unbound.follow(event, now)
                self.devices.follow(event)
                self.overlaps.follow(event)
                self.registering.follow(event)


class CardSettlement:
    """Settles the cards of one cluster. `nodes` are followed in every replica, by `run`.

    `offered` are the cards in ResourceSlices, which the caller sets.
    """

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
        """`name` is the cluster's name in the ledger; `now` returns µs of Unix time."""
        self.nodes = NodeInformer(cluster, rules or NodeRules(), failures=FailedObjects(count))
        self.offered = OfferedCards()
        self._view, self._cluster, self._name = view, cluster, name
        self._now, self._count = now, count
        self._settings = settings or CardSettings()
        self._tasks: CardReconcilers | None = None
        view.subscribe(self._follow)

    async def run(self) -> None:
        """Follow the nodes until cancelled."""
        await self.nodes.run()

    @property
    def unbound(self) -> int:
        """The number of unbound placements; 0 while this replica is not active."""
        tasks = self._running()
        return len(tasks.unbound) if tasks is not None else 0

    @property
    def unaccounted(self) -> int:
        """The number of unaccounted pods; 0 while this replica is not active."""
        tasks = self._running()
        return len(tasks.placements.unaccounted) if tasks is not None else 0

    @property
    def overlapping(self) -> int:
        """The number of overlaps on cards; 0 while this replica is not active."""
        tasks = self._running()
        return len(tasks.overlaps.standing) if tasks is not None else 0

    def warnings(self) -> list[str]:
        """Return the problems of nodes and pods whose cards cannot be read or charged."""
        problems, tasks = self.nodes.warnings(), self._running()
        held = sorted(tasks.registering.held) if tasks is not None else []
        for name in held[:NAMED_MAX]:
            problems.append(
                f"node {name}: its announcements change too often, and"
                f" {ANNOUNCED_BYTES_PER_SECOND} bytes of them are recorded per second:"
                " look at the device plugin there"
            )
        problems += tasks.overlaps.warnings() if tasks is not None else []
        unaccounted = tasks.placements.unaccounted if tasks is not None else {}
        for uncharged in islice(unaccounted.values(), NAMED_MAX):
            meta = uncharged.pod.metadata
            problems.append(
                f"pod {meta.namespace}/{meta.name} is not charged on cards: {uncharged.reason}"
            )
        more = len(unaccounted) - NAMED_MAX
        return (
            [*problems, f"and {more} more pods are not charged on cards"] if more > 0 else problems
        )

    def begin(self, commands: CommandQueue) -> CardReconcilers:
        """Begin an active period, whose commands are sent through this queue."""
        context = CardReconcilerContext(
            self._view, self._cluster, self._name, self._settings, self._now, commands, self._count
        )
        self._tasks = CardReconcilers(context, nodes=self.nodes, offered=self.offered)
        return self._tasks

    def _running(self) -> CardReconcilers | None:
        tasks = self._tasks
        return tasks if tasks is not None and tasks.running else None

    def _follow(self, record: Record) -> None:
        tasks = self._running()
        if tasks is not None:
            tasks.follow(record, asyncio.get_running_loop().time())
