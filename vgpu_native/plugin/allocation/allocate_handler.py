"""Allocating: what `Allocate` answers, although it does not say who asks."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from vgpu_native.plugin.allocation import allocate_response
from vgpu_native.plugin.allocation.allocate_wait_budget import AllocateWaitBudget, WaitingCall
from vgpu_native.plugin.allocation.allocation_limits import closed, is_limited
from vgpu_native.plugin.allocation.allocation_store import Allocation, AllocationStore, owner_of
from vgpu_native.plugin.allocation.likely_container import LikelyContainer, candidates, choose
from vgpu_native.plugin.allocation.owner_correction import (
    correct_by_checkpoint,
    correct_by_pod_resources,
)
from vgpu_native.plugin.grpc_status import failed_precondition, unavailable
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2 import ContainerAllocateResponse
from vgpu_native.plugin.kubelet.kubelet_state import KubeletState
from vgpu_native.plugin.placement_source import PlacedContainer, PlacementSource
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.shared import limits_page

AGAIN_SECONDS: Final = 0.25
"""How long to wait at most before kubelet and ledger are looked at again."""

_log: Final = structlog.get_logger("vgpu_native.plugin")


class AllocateHandler:
    """Hands out cards."""

    def __init__(
        self,
        settings: PluginSettings,
        placements: PlacementSource,
        *,
        allocations: AllocationStore,
        kubelet: KubeletState,
    ) -> None:
        """Answer from placements, and keep what was answered in allocations."""
        self._settings = settings
        self._placements = placements
        self._allocations = allocations
        self._kubelet = kubelet
        self.patience = AllocateWaitBudget(settings, placements)

    async def allocate(self, ids: Sequence[str]) -> ContainerAllocateResponse:
        """Answer for one container with these ids. Raises Refused, OSError."""
        if self._settings.cdi:
            # Whose it is, is decided at the start: there is nothing to guess, nor to wait for.
            allocation = self._allocations.make(ids, cdi=True)
            self._allocations.put(allocation)
            return allocate_response.cdi_answer(allocation.token)
        # Between a choice and its record nothing is awaited: of two questions at once, the second
        # finds the first one's answer.
        return self._answer(ids, await self._chosen(len(ids)))

    async def expected(self, count: int) -> tuple[str, ...]:
        """Return the cards of whoever is likely to ask next for so many devices."""
        found = await self._likeliest(count)
        return found.container.cards if found else ()

    async def _chosen(self, count: int) -> LikelyContainer:
        """Return who is likely to be asking, waiting for the ledger if need be. Raises Refused."""
        await self._settle()
        if found := await self._likeliest(count):
            return found
        with self.patience.waiting() as call:
            return await self._waited(count, call)

    async def _waited(self, count: int, call: WaitingCall) -> LikelyContainer:
        """Return the likeliest as soon as there is one. Raises Refused when it takes too long."""
        pause = min(AGAIN_SECONDS, self._settings.allocate_seconds / 2)
        told = False
        while True:
            version, over = self._placements.version, call.is_over
            if found := await self._likeliest(count, again=call.again):
                return found
            if over:
                raise (
                    failed_precondition(self._nobody(count))
                    if call.known
                    else unavailable(self._unknown(count))
                )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._placements.wait(version), pause)
            if not told and not call.known:
                told = True
                _log.warning("allocate_waits", devices=count, reason=self._behind)

    async def _settle(self) -> None:
        entries = await self._kubelet.entries()
        if entries is not None:
            correct_by_checkpoint(self._allocations, self._kubelet, entries, _now())
        elif self._allocations.all():
            correct_by_pod_resources(
                self._allocations, self._kubelet, await self._kubelet.holders() or ()
            )

    async def _likeliest(self, count: int, *, again: bool = False) -> LikelyContainer | None:
        """Return who is likely to be asking now; with `again` also of those who have answers."""
        entries = await self._kubelet.entries()
        given = self._allocations.given(_now(), entries)
        latest = self._allocations.latest()
        uid = latest.owner.uid if latest and latest.owner else ""
        found = (one for one in self._placements.containers() if again or not one.allocated)
        return choose(candidates(found, given, count, uid))

    def _answer(self, ids: Sequence[str], choice: LikelyContainer) -> ContainerAllocateResponse:
        settings, container = self._settings, choice.container
        allocation = self._record(ids, container)
        if not choice.same_cards:
            _log.info("allocated_by_order", container=str(container))
        # Amounts that may be another's are not told: the page has them from the start on.
        shares = container.shares if choice.alike else ()
        limited = allocation.limited
        page = self._allocations.page(allocation)
        region = self._allocations.region(allocation)
        return allocate_response.plain_answer(
            allocation.token,
            allocate_response.environment(allocation.cards, shares, settings, limited=limited),
            allocate_response.mounts(page, region, settings, limited=limited),
        )

    def _record(self, ids: Sequence[str], container: PlacedContainer) -> Allocation:
        settings = self._settings
        made = msgspec.structs.replace(
            self._allocations.make(ids, cdi=False),
            cards=container.cards,
            limited=is_limited(container, settings),
            owner=owner_of(container),
        )
        if made.limited:
            limits_page.write(self._allocations.page(made), closed(made.cards, settings))
        self._allocations.put(made)
        return made

    @property
    def _behind(self) -> str:
        return self._placements.trouble or "the log has not been read to its end"

    def _unknown(self, count: int) -> str:
        return (
            f"it is not known for whom {count} devices are asked: {self._behind}. The kubelet was"
            f" kept waiting for {self.patience.seconds:.0f} s and acts on no pod meanwhile. The pod"
            " has failed, its controller makes another; with the setting cdi it would have waited"
        )

    def _nobody(self, count: int) -> str:
        waiting = sorted(str(one) for one in self._placements.containers() if not one.allocated)
        return (
            f"no container that was placed on this node waits for {count} devices"
            f" ({len(waiting)} were placed here{': ' if waiting else ''}{'; '.join(waiting[:3])})."
            " A pod that asks for cards has to be bound by a scheduler that asks gpuledger"
        )


def _now() -> int:
    return time.time_ns() // 1_000
