"""Extender in the service: its inventory of cards follows the log of the replica.

It is ready when the cards have been read from the log.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from extender import extender_routes
from extender.inventory.cluster_inventory import ClusterInventory
from extender.inventory.unrecorded_card_use import UsageOverlay
from extender.scheduler_api.extender_ports import ExtenderPorts, PreemptionCluster
from extender.scheduler_extender import Extender
from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.wiring import extender_from_settings
from ledger.kube.requests.demand_rules import DemandRules
from ledger.log.ledger_port import Ledger
from ledger.log.records import Record
from ledger.runtime.http.direct_endpoints import Endpoints
from ledger.runtime.metrics import Telemetry
from ledger.runtime.settings.settings import Settings

LOAD_AGAIN_SECONDS: Final = 0.05

SLICES_SECONDS: Final = 5.0
"""How long the extender waits at its start for the list of ResourceSlices, so that it does not give
cards that kube-scheduler allocates. Without the right to list them it starts nevertheless."""


_log: Final = structlog.get_logger("extender")


class ServiceExtender:
    """An extender whose inventory follows the log. Add its endpoints, and run it.

    `slices_listed`, if given, is set once the cards in ResourceSlices are known.
    """

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
        self.slices_listed: asyncio.Event | None = None
        self._may_load = False
        replica.subscribe(self._follow)
        evicting = cluster if settings.preemption == "on" else None
        broadcast = replica.hints.broadcast
        service = ExtenderPorts(
            ledger, replica, cluster, rules, telemetry.count, evicting, broadcast
        )
        self._extender = Extender(
            self.inventory,
            service,
            settings=extender_from_settings.extender_settings(settings),
        )
        replica.hints.on_hint(self._extender.receive)
        telemetry.read("extender_guesses", lambda: len(self.inventory.overlay))
        telemetry.read("extender_nodes", lambda: len(self.inventory.rows))
        telemetry.read("extender_reloads_total", lambda: self.inventory.reloads)

    def endpoints(self) -> Endpoints:
        """Return the endpoints of the extender."""
        bytes_max = self._settings.extender_bytes_max
        return extender_routes.endpoints(self._extender, bytes_max, self._took)

    def check(self) -> tuple[bool, str]:
        """Return whether the cards are loaded, for readiness."""
        loaded = self.inventory.loaded
        return loaded, "" if loaded else "the cards of the nodes have not been read from the log"

    async def run(self) -> None:
        """Load the cards when the log is open, and record pod events until cancelled."""
        await self._replica.opened.wait()
        await self._wait_for_slices()
        self._may_load = True
        while not self.inventory.loaded:
            self.inventory.load(self._replica.state)
            await asyncio.sleep(LOAD_AGAIN_SECONDS)  # a record may be on its way to the log
        await self._extender.run()

    async def _wait_for_slices(self) -> None:
        if self.slices_listed is None:
            return
        try:
            async with asyncio.timeout(SLICES_SECONDS):
                await self.slices_listed.wait()
        except TimeoutError:
            _log.warning("slices_not_listed", seconds=SLICES_SECONDS)

    def _follow(self, record: Record) -> None:
        if self._may_load:
            self.inventory.follow(self._replica.state, record)

    def _took(self, verb: str, seconds: float) -> None:
        self._telemetry.observe("extender_seconds", seconds, verb)
