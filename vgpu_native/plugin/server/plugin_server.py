"""Plugin server: serves the plugin's socket, and removes the allocations of ended containers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import grpc
import structlog

from vgpu_native.plugin.advertised_devices import AdvertisedDevices
from vgpu_native.plugin.allocation.allocate_handler import AllocateHandler
from vgpu_native.plugin.allocation.allocation_store import AllocationStore
from vgpu_native.plugin.allocation.garbage_collection import collect
from vgpu_native.plugin.allocation.pre_start_handler import PreStartHandler
from vgpu_native.plugin.allocation.region_file_systems import RegionSlots
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2_grpc import (
    add_DevicePluginServicer_to_server,
)
from vgpu_native.plugin.kubelet.kubelet_state import KubeletState
from vgpu_native.plugin.placement_source import PlacementSource
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.plugin.server.kubelet_registration import KubeletRegistration, identity
from vgpu_native.plugin.server.plugin_service import DevicePluginService
from vgpu_native.shared.atomic_file import write_whole

CALLS_MAX: Final = 64
"""Maximum number of concurrent calls; the kubelet makes a few."""

STOP_SECONDS: Final = 1.0
"""How long running calls may continue when the plugin stops."""

COLLECT_SECONDS: Final = 60.0
"""Interval of garbage collection."""

_log: Final = structlog.get_logger("vgpu_native.plugin")


class DevicePluginServer:
    """A device plugin, which `run` serves, with its `devices` and `allocations`."""

    def __init__(self, settings: PluginSettings, placements: PlacementSource) -> None:
        """Allocate cards by these placements."""
        self.devices = AdvertisedDevices(numa=settings.numa)
        slots = RegionSlots(settings.state_dir / "slots")
        self.allocations = AllocationStore(settings.state_dir / "allocations", slots)
        self._settings = settings
        self._kubelet = KubeletState(settings, placements)
        self._allocate = AllocateHandler(
            settings,
            placements,
            allocations=self.allocations,
            kubelet=self._kubelet,
            make_room=lambda: self._removed(early=True),
        )
        self._removing = asyncio.Lock()
        self._pre_start = PreStartHandler(
            settings, placements, allocations=self.allocations, kubelet=self._kubelet
        )
        self._servicer: DevicePluginService | None = None
        self._registration = KubeletRegistration(
            settings, self.devices, has_listener=lambda: self._has_listener
        )

    @property
    def registered(self) -> bool:
        """Whether the plugin is registered and the kubelet reads its devices."""
        return self._registration.is_done and self._has_listener

    @property
    def waited_seconds(self) -> float:
        """Seconds for which the kubelet has been waiting for `Allocate`; 0 if it is not."""
        return self._allocate.wait_budget.seconds

    @property
    def _has_listener(self) -> bool:
        return self._servicer is not None and self._servicer.listeners > 0

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError when the state directory cannot be used."""
        self._prepare()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._collect())
            while True:
                try:
                    async with self._serving() as ours:
                        await self._registration.keep(ours)
                    _log.warning("plugin_socket_gone", socket=self._place)
                except OSError as error:
                    _log.error("plugin_not_served", socket=self._place, error=str(error))
                    await asyncio.sleep(self._settings.look_seconds)

    @property
    def _place(self) -> str:
        return str(self._settings.socket)

    def _prepare(self) -> None:
        self._settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o755)
        content = f"{self._settings.library}\n".encode()
        self.allocations.load()
        with suppress(OSError):
            if self._settings.preload.read_bytes() == content:
                return
        write_whole(self._settings.preload, content, 0o644)

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[tuple[int, int, int]]:
        """Serve the socket for a block, and return its identity. Raises OSError.

        The socket replaces one that a killed plugin left.
        """
        server = grpc.aio.server(maximum_concurrent_rpcs=CALLS_MAX)
        servicer = DevicePluginService(
            self.devices, allocate=self._allocate, pre_start=self._pre_start
        )
        add_DevicePluginServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        try:
            server.add_insecure_port(f"unix:{self._place}")
        except RuntimeError as error:
            raise OSError(f"cannot listen at {self._place}: {error}") from error
        await server.start()
        self._servicer = servicer
        try:
            ours = identity(self._settings.socket)
            if ours is None:
                raise OSError(f"{self._place} was removed during its creation")
            yield ours
        finally:
            self._registration.forget()
            self._servicer = None
            servicer.close()
            await server.stop(STOP_SECONDS)

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            await self._removed()

    async def _removed(self, *, early: bool = False) -> None:
        """Remove the allocations of ended containers, once at a time."""
        async with self._removing:
            count = await collect(self.allocations, self._kubelet, self._settings, early=early)
        if count:
            _log.info("allocations_removed", count=count, early=early)
