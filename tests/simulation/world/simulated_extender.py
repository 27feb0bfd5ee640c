"""Simulated extender: the real extender and the real card settlement of one replica."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from extender.fit.inventory_fit import FitPreferences
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_extender import Extender, ExtenderSettings
from extender.settlement.active_card_reconcilers import CardSettlement
from extender.settlement.card_reconciler_context import CardSettings
from ledger.log.ledger_port import Ledger
from ledger.log.records import Record
from ledger.log.writer.writer import Writer
from simulation.model.settings import RULES, SETTLE_SECONDS
from simulation.world.card_cluster_client import CardClusterClient

LOAD_AGAIN_SECONDS: Final = 0.05

SETTINGS: Final = CardSettings(
    rules=RULES, settle_seconds=SETTLE_SECONDS, claim_seconds=8.0, unready_seconds=4.0
)
EXTENDER: Final = ExtenderSettings(bind_wait_seconds=3.0, fence_seconds=0.5)
"""A fence comes sooner than most late Bindings, so that the two meet."""

POLICIES: Final = (("spread",), ("binpack",))
"""Policies of replicas for cards of a node, in turn: a restarted replica has another one."""


class SimulatedExtender:
    """Places pods on cards of a cluster, and settles what became of that."""

    def __init__(
        self,
        ledger: Ledger,
        writer: Writer,
        cluster: CardClusterClient,
        now: Callable[[], int],
        number: int,
    ) -> None:
        """Decide through a ledger; `now` returns µs of Unix time, `number` is the replica's."""
        self._writer = writer
        self._inventory = ClusterInventory(cluster.name, UsageOverlay())
        writer.subscribe(self._follow)
        self.settlement = CardSettlement(
            writer, cluster, name=cluster.name, now=now, settings=SETTINGS
        )
        self.settlement.nodes.set_scores = self._inventory.set_scores
        service = ExtenderPorts(ledger, writer, cluster, lambda: RULES)
        clock = asyncio.get_running_loop().time
        preferences = FitPreferences(card_policies=POLICIES[number % len(POLICIES)])
        settings = msgspec.structs.replace(EXTENDER, preferences=preferences)
        self.extender = Extender(
            self._inventory, service, settings=settings, now=lambda: now() / 1e6, clock=clock
        )

    async def run(self) -> None:
        """Load the cards, follow the nodes and send events until cancelled."""
        while not self._inventory.loaded:
            self._inventory.load(self._writer.state)
            await asyncio.sleep(LOAD_AGAIN_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.settlement.run())
            tasks.create_task(self.extender.run())

    def _follow(self, record: Record) -> None:
        self._inventory.follow(self._writer.state, record)
