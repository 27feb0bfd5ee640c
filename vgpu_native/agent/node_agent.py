"""Node agent: the loops that keep plugin, limits pages and metrics equal to ledger and driver."""

import asyncio
import contextlib
from pathlib import Path
from typing import Final

import structlog

from vgpu_native.agent.bypass_reports import BypassReporter
from vgpu_native.agent.cards.card_inventory import CardInventory
from vgpu_native.agent.limits_page_writer import Key, LimitsWriter
from vgpu_native.agent.log_follower import LogFollower
from vgpu_native.agent.memory_overhead import count_against_limits
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
"""Longest time between two comparisons of pages with the ledger, because a page may be removed."""

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

        With `overhead`, the memory overhead of containers counts against their limits.
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
            tasks.create_task(self._keep_reporting())

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

        No page is changed before the log was read to its end once, because the placements that are
        stored on disk may be older than the pages.
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
                for task in waiting:
                    task.cancel()

    async def _keep_observing(self) -> None:
        while True:
            holders = self._holders()
            cards = [card.uuid for card in self._inventory.cards]
            observation = await self._observer.look(holders, cards)
            self._exported.show(observation)
            self._settle(observation)
            if self._overhead:
                count_against_limits(self._limits, observation.overhead)
            await self._bypasses.report(observation.drifts, [holder.owner for holder in holders])
            await asyncio.sleep(self._look_seconds)

    async def _keep_reporting(self) -> None:
        """Report pods that cannot start, until each report is written."""
        changes = self._allocations.changes
        while True:
            version = changes.version
            await self._misallocations.report(self._allocations.all())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await changes.wait(version)

    def _settle(self, observation: UsageObservation) -> None:
        """Drop the earlier limits of cards of which the usage is within the lowered limits."""
        for page, (generation, cards) in observation.within.items():
            try:
                self._limits.settle(Path(page), generation, cards)
            except (BadLimitsPage, OSError, ValueError) as error:
                _log.warning("limits_not_settled", page=page, reason=str(error))

    def _pages(self) -> dict[Key, Path]:
        """Return the limits pages of containers that are known for sure."""
        return {holder.owner.key: holder.page for holder in self._holders()}

    def _holders(self) -> list[LimitedContainer]:
        allocations = self._allocations
        containers = (
            limited_container(
                allocation, allocations.page(allocation), allocations.region(allocation)
            )
            for allocation in allocations.assigned()
        )
        return [container for container in containers if container is not None]
