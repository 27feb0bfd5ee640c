"""The plugin as a whole: serves its socket, stays registered, and clears up after itself.

The kubelet's directory is looked at once a second and not watched by inotify: that needs no other
dependency, sees a directory that is replaced, too, and a second is little beside a kubelet's start.
"""

import asyncio
import random
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
from vgpu_native.plugin.server.plugin_service import DevicePluginService
from vgpu_native.plugin.server.registration import NotRegistered, identity, register
from vgpu_native.shared.atomic_file import write_whole

CALLS_MAX: Final = 64
"""Most calls that are answered at the same time; the kubelet makes a few."""

STOP_SECONDS: Final = 1.0
"""How long calls may go on when the plugin stops."""

RETRY_SECONDS_MAX: Final = 10.0
"""Most time between two attempts to register."""

UNHEARD_SECONDS: Final = 10.0
"""A kubelet that has not asked for the devices for so long has forgotten us."""

COLLECT_SECONDS: Final = 60.0
"""How often allocations of containers that are gone are removed."""

_log: Final = structlog.get_logger("vgpu_native.plugin")


class DevicePluginServer:
    """A device plugin. `run` it; what it advertises is `devices`, what it knows `allocations`."""

    def __init__(self, settings: PluginSettings, placements: PlacementSource) -> None:
        """Hand out cards as these placements say."""
        self.devices = AdvertisedDevices(numa=settings.numa)
        slots = RegionSlots(settings.state_dir / "slots")
        self.allocations = AllocationStore(settings.state_dir / "allocations", slots)
        self._settings = settings
        self._kubelet = KubeletState(settings, placements)
        self._allocate = AllocateHandler(
            settings, placements, allocations=self.allocations, kubelet=self._kubelet
        )
        self._pre_start = PreStartHandler(
            settings, placements, allocations=self.allocations, kubelet=self._kubelet
        )
        self._servicer: DevicePluginService | None = None
        self._registered: tuple[int, int, int] | None = None

    @property
    def registered(self) -> bool:
        """Whether the kubelet knows us and listens."""
        return self._registered is not None and self._is_heard

    @property
    def waited_seconds(self) -> float:
        """For how long the kubelet has been waiting for an answer to `Allocate`, 0 if it is not."""
        return self._allocate.patience.seconds

    @property
    def _is_heard(self) -> bool:
        return self._servicer is not None and self._servicer.listeners > 0

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError when the state directory cannot be used."""
        self._prepare()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._collect())
            while True:
                try:
                    async with self._serving() as ours:
                        await self._stay_registered(ours)
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
        """Serve the socket for a block, and give its identity. Raises OSError.

        A socket that a killed plugin has left is replaced.
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
                raise OSError(f"{self._place} was removed while it was made")
            yield ours
        finally:
            self._registered = self._servicer = None
            servicer.close()
            await server.stop(STOP_SECONDS)

    async def _stay_registered(self, ours: tuple[int, int, int]) -> None:
        """Register whenever the kubelet is another; return when our socket is not there."""
        loop = asyncio.get_running_loop()
        heard, failures = loop.time(), 0
        while identity(self._settings.socket) == ours:
            kubelet = identity(self._settings.kubelet_socket)
            if self._is_heard:
                heard = loop.time()
            elif loop.time() - heard > UNHEARD_SECONDS:
                heard, self._registered = loop.time(), None
            # To a kubelet that is told of no cards, those of its pods would be gone.
            if kubelet in (None, self._registered) or not self.devices.known:
                pause = self._settings.look_seconds
            else:
                failures = await self._try(kubelet, failures)
                heard, pause = loop.time(), self._pause(failures)
            await asyncio.sleep(pause)

    async def _try(self, kubelet: tuple[int, int, int], failures: int) -> int:
        """Register, and return how often that has failed in a row."""
        try:
            await register(self._settings)
        except NotRegistered as error:
            _log.warning("plugin_not_registered", error=str(error), failures=failures + 1)
            return failures + 1
        self._registered = kubelet
        _log.info("plugin_registered", resource=self._settings.resource)
        return 0

    def _pause(self, failures: int) -> float:
        longest: float = min(
            self._settings.look_seconds * 2 ** min(failures, 10), RETRY_SECONDS_MAX
        )
        return longest * random.uniform(0.5, 1.0)

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            if count := await collect(self.allocations, self._kubelet, self._settings):
                _log.info("allocations_removed", count=count)
