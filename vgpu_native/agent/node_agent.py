"""The agent of one node: it keeps plugin, limits pages and metrics equal to ledger and driver."""

import asyncio
import contextlib
from pathlib import Path
from typing import Final

import structlog

from vgpu_native.agent.bypass_reports import BypassReporter
from vgpu_native.agent.card_inventory import CardInventory
from vgpu_native.agent.limits_writer import Key, LimitsWriter
from vgpu_native.agent.log_follower import LogFollower
from vgpu_native.agent.misallocation_reports import MisallocationReporter
from vgpu_native.agent.node_metrics import AgentCollector
from vgpu_native.agent.usage_observer import (
    LimitedContainer,
    UsageObservation,
    UsageObserver,
    limited_container,
)
from vgpu_native.plugin.server.plugin_server import DevicePluginServer
from vgpu_native.shared.limits_page import BadLimitsPage

AGAIN_SECONDS: Final = 10.0
"""Interval between comparisons of pages with the ledger without a change: a page may be removed."""

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class NodeAgent:
    """The loops of one node."""

    def __init__(  # noqa: PLR0913 - each loop has its part
        self,
        inventory: CardInventory,
        follower: LogFollower,
        *,
        plugin: DevicePluginServer,
        limits: LimitsWriter,
        observer: UsageObserver,
        exported: AgentCollector,
        bypasses: BypassReporter,
        misallocations: MisallocationReporter,
        look_seconds: float,
        overhead: bool,
    ) -> None:
        """Use these parts; read the usage of containers every `look_seconds` seconds.

        With `overhead`, memory that processes use beside what they count counts against their
        limits.
        """
        self._inventory, self._follower = inventory, follower
        self._devices, self._allocations = plugin.devices, plugin.allocations
        self._limits, self._observer, self._exported = limits, observer, exported
        self._bypasses, self._misallocations = bypasses, misallocations
        self._look_seconds, self._overhead = look_seconds, overhead

    async def run(self) -> None:
        """Run all loops until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_advertising())
            tasks.create_task(self._keep_limiting())
            tasks.create_task(self._keep_observing())
            tasks.create_task(self._keep_telling())

    async def _keep_advertising(self) -> None:
        changes = self._inventory.changes
        while True:
            version = changes.version
            try:
                self._devices.replace(self._inventory.cards)
            except ValueError as error:
                _log.error("cards_not_advertised", reason=str(error))
            await changes.wait(version)

    async def _keep_limiting(self) -> None:
        """Update pages whenever placements or allocations have changed.

        Not before the log was read to its end once: stored placements may be older than the pages
        after a start.
        """
        follower, allocations = self._follower, self._allocations
        while True:
            placed, handed_out = follower.version, allocations.changes.version
            if follower.is_current:
                self._limits.apply(self._pages(), follower.containers())
            waiting = [
                asyncio.create_task(follower.wait(placed)),
                asyncio.create_task(allocations.changes.wait(handed_out)),
            ]
            try:
                await asyncio.wait(
                    waiting, timeout=AGAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                for one in waiting:
                    one.cancel()

    async def _keep_observing(self) -> None:
        while True:
            holders = self._holders()
            cards = [one.uuid for one in self._inventory.cards]
            found = await self._observer.look(holders, cards)
            self._exported.show(found)
            self._settle(found)
            if self._overhead:
                self._hold_against(found)
            await self._bypasses.report(found.drifts, [one.owner for one in holders])
            await asyncio.sleep(self._look_seconds)

    async def _keep_telling(self) -> None:
        """Report pods that cannot start, until each report is written."""
        changes = self._allocations.changes
        while True:
            version = changes.version
            await self._misallocations.report(self._allocations.all())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await changes.wait(version)

    def _hold_against(self, found: UsageObservation) -> None:
        for page, overhead in found.overhead.items():
            try:
                self._limits.set_overhead(Path(page), overhead)
            except (BadLimitsPage, OSError) as error:
                _log.warning("overhead_not_written", page=page, reason=str(error))

    def _settle(self, found: UsageObservation) -> None:
        """Drop earlier, larger limits where the usage is within the lowered ones."""
        for page, (generation, cards) in found.within.items():
            try:
                self._limits.settle(Path(page), generation, cards)
            except (BadLimitsPage, OSError) as error:
                _log.warning("limits_not_settled", page=page, reason=str(error))

    def _pages(self) -> dict[Key, Path]:
        """Return the limits pages of containers that are known for sure."""
        return {one.owner.key: one.page for one in self._holders()}

    def _holders(self) -> list[LimitedContainer]:
        allocations = self._allocations
        found = (
            limited_container(one, allocations.page(one), allocations.region(one))
            for one in allocations.assigned()
        )
        return [one for one in found if one is not None]
