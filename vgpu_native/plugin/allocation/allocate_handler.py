"""Allocate handler: responds to `Allocate` with the cards of the likely container.

The call does not name the container. While the ledger has no placement that fits, the call waits
(`allocate_wait_budget`). With the setting `cdi` it neither chooses nor waits.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from vgpu_native.plugin.allocation import container_environment
from vgpu_native.plugin.allocation.allocate_wait_budget import AllocateWaitBudget, WaitingCall
from vgpu_native.plugin.allocation.allocation_store import Allocation, AllocationStore, owner_of
from vgpu_native.plugin.allocation.initial_limits import closed, is_limited
from vgpu_native.plugin.allocation.likely_container import (
    LikelyContainer,
    candidates,
    choose,
    containers_with_cards,
)
from vgpu_native.plugin.allocation.owner_correction import (
    correct_by_checkpoint,
    correct_by_pod_resources,
)
from vgpu_native.plugin.grpc_status import failed_precondition, shown_ids, unavailable
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2 import ContainerAllocateResponse
from vgpu_native.plugin.kubelet.kubelet_state import KubeletState
from vgpu_native.plugin.placement_source import PlacedContainer, PlacementSource
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.shared import limits_page

AGAIN_SECONDS: Final = 0.25
"""Longest pause between two reads of the kubelet's and the ledger's state."""

_log: Final = structlog.get_logger("vgpu_native.plugin")


class AllocateHandler:
    """Responds to `Allocate` with the cards of the likely container."""

    def __init__(
        self,
        settings: PluginSettings,
        placements: PlacementSource,
        *,
        allocations: AllocationStore,
        kubelet: KubeletState,
        make_room: Callable[[], Awaitable[object]],
    ) -> None:
        """Respond from placements, and store each response in allocations.

        `make_room` removes allocations of ended containers.
        """
        self._make_room = make_room
        self._settings = settings
        self._placements = placements
        self._allocations = allocations
        self._kubelet = kubelet
        self.wait_budget = AllocateWaitBudget(settings, placements)

    async def allocate(self, ids: Sequence[str]) -> ContainerAllocateResponse:
        """Return the response for one container with these ids. Raises RejectedCall, OSError."""
        if self._allocations.is_full:
            await self._make_room()
        if self._settings.cdi:
            # PreStartContainer finds the container, so this call needs no choice and no wait.
            allocation = self._allocations.make(ids, cdi=True)
            self._allocations.put(allocation)
            _log.info("allocated", allocation=allocation.token, ids=shown_ids(ids))
            return container_environment.cdi_response(allocation.token)
        # No await separates the choice from its record, so that the second of two concurrent
        # calls finds the response of the first.
        return self._respond(ids, await self._chosen(len(ids)))

    async def expected(self, count: int) -> tuple[str, ...]:
        """Return the cards of the container that is likely the next with `count` devices."""
        likely = await self._likeliest(count)
        return likely.container.cards if likely else ()

    async def _chosen(self, count: int) -> LikelyContainer:
        """Return the likely container; wait for the ledger if needed. Raises RejectedCall."""
        await self._settle()
        if likely := await self._likeliest(count):
            return likely
        with self.wait_budget.waiting() as call:
            return await self._waited(count, call)

    async def _waited(self, count: int, call: WaitingCall) -> LikelyContainer:
        """Return the likely container as soon as one exists. Raises RejectedCall after the wait."""
        pause = min(AGAIN_SECONDS, self._settings.allocate_seconds / 2)
        logged = False
        while True:
            version, over = self._placements.version, call.is_over
            if likely := await self._likeliest(count, repeated=call.may_repeat):
                return likely
            if over:
                raise (
                    failed_precondition(self._no_container(count))
                    if call.caught_up
                    else unavailable(self._ledger_behind(count))
                )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._placements.wait(version), pause)
            if not logged and not call.caught_up:
                logged = True
                _log.warning("allocate_waits", devices=count, reason=self._behind)

    async def _settle(self) -> None:
        entries = await self._kubelet.entries()
        if entries is not None:
            correct_by_checkpoint(self._allocations, self._kubelet, entries, _now())
        elif self._allocations.all():
            correct_by_pod_resources(
                self._allocations, self._kubelet, await self._kubelet.holders() or ()
            )

    async def _likeliest(self, count: int, *, repeated: bool = False) -> LikelyContainer | None:
        """Return the likely container; with `repeated`, also one that has its cards already."""
        entries = await self._kubelet.entries()
        given = containers_with_cards(self._allocations.all(), _now(), entries)
        latest = self._allocations.latest()
        uid = latest.owner.uid if latest and latest.owner else ""
        containers = (
            container
            for container in self._placements.containers()
            if repeated or not container.allocated
        )
        return choose(candidates(containers, given, count, uid))

    def _respond(self, ids: Sequence[str], choice: LikelyContainer) -> ContainerAllocateResponse:
        settings, container = self._settings, choice.container
        allocation = self._record(ids, container)
        if not choice.same_cards:
            _log.info("allocated_by_order", container=str(container))
        _log.info("allocated", allocation=allocation.token, ids=shown_ids(ids))
        # Omit amounts that may be another container's: the limits page has them from the start.
        shares = container.shares if choice.alike else ()
        limited = allocation.limited
        page = self._allocations.page(allocation)
        region = self._allocations.region(allocation)
        return container_environment.plain_response(
            allocation.token,
            container_environment.environment(allocation.cards, shares, settings, limited=limited),
            container_environment.mounts(page, region, settings, limited=limited),
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

    def _ledger_behind(self, count: int) -> str:
        return (
            f"the container of a request for {count} devices is not known: {self._behind}. The"
            f" kubelet has waited {self.wait_budget.seconds:.0f} s, and handles no pod meanwhile."
            " The pod fails and its controller creates another; with the setting cdi, the pod"
            " would wait"
        )

    def _no_container(self, count: int) -> str:
        waiting = sorted(
            str(container) for container in self._placements.containers() if not container.allocated
        )
        return (
            f"no container that was placed on this node waits for {count} devices"
            f" ({len(waiting)} were placed here{': ' if waiting else ''}{'; '.join(waiting[:3])})."
            " A pod that requests cards must be bound by a scheduler that uses gpuledger's extender"
        )


def _now() -> int:
    return time.time_ns() // 1_000
