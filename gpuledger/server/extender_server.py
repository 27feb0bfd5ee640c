"""Extender server: the scheduler's part of the service, its extender and the inventory of cards."""

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.routing import Route

from extender import app
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.usage_overlay import UsageOverlay
from extender.scheduler_api.extender_ports import ExtenderPorts, PreemptionCluster
from extender.scheduler_extender import Extender
from gpuledger.server.replica import LedgerReplica
from gpuledger.wiring import extender_preferences
from ledger.kube.requests.demand_rules import DemandRules
from ledger.log.ledger import Ledger
from ledger.log.records import Record
from ledger.runtime.metrics import Telemetry
from ledger.runtime.settings.settings import Settings

LOAD_AGAIN_SECONDS: Final = 0.05


class ExtenderServer:
    """An extender whose inventory follows the log. Add its routes, and run it."""

    def __init__(
        self,
        settings: Settings,
        *,
        replica: LedgerReplica,
        ledger: Ledger,
        cluster: PreemptionCluster | None,
        rules: Callable[[], DemandRules],
        telemetry: Telemetry,
    ) -> None:
        """Decide through a ledger, and bind in a cluster. Raises CommandError for unusable
        settings."""
        self._settings, self._replica, self._telemetry = settings, replica, telemetry
        self.inventory = ClusterInventory(settings.cluster, UsageOverlay())
        replica.subscribe(self._follow)
        evicting = cluster if settings.preemption == "on" else None
        tell = replica.hints.tell
        service = ExtenderPorts(ledger, replica, cluster, rules, telemetry.count, evicting, tell)
        self._extender = Extender(
            self.inventory,
            service,
            settings=extender_preferences.extender_settings(settings),
        )
        replica.hints.on_hint(self._extender.receive)
        telemetry.read("extender_guesses", lambda: len(self.inventory.overlay))
        telemetry.read("extender_nodes", lambda: len(self.inventory.rows))
        telemetry.read("extender_reloads", lambda: self.inventory.reloads)

    def routes(self) -> list[Route]:
        """Return the routes of the extender."""
        return app.routes(self._extender, self._settings.extender_bytes_max, self._took)

    def check(self) -> tuple[bool, str]:
        """Return whether the cards are loaded, for readiness."""
        loaded = self.inventory.loaded
        return loaded, "" if loaded else "the cards of the nodes have not been read from the log"

    async def run(self) -> None:
        """Load the cards when the log is open, and record pod events until cancelled."""
        await self._replica.opened.wait()
        while not self.inventory.loaded:
            self.inventory.load(self._replica.state)
            await asyncio.sleep(LOAD_AGAIN_SECONDS)  # a record may be on its way to the log
        await self._extender.run()

    def _follow(self, record: Record) -> None:
        self.inventory.follow(self._replica.state, record)

    def _took(self, verb: str, seconds: float) -> None:
        self._telemetry.observe("extender_seconds", seconds, verb)
