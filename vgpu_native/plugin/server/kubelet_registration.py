"""Kubelet registration: registers the plugin, again after each restart of the kubelet.

The plugin polls the kubelet's directory five times a second instead of using inotify. Polling needs
no dependency and detects a replaced directory. A kubelet of 1.36 admits the pods of its node half a
second after it makes its socket, and rejects those with cards for good until the plugin registers.
"""

import asyncio
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc
import structlog

from vgpu_native.plugin.advertised_devices import AdvertisedDevices
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2 import RegisterRequest
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2_grpc import RegistrationStub
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.plugin.server.plugin_service import OPTIONS

API_VERSION: Final = "v1beta1"

REGISTER_SECONDS: Final = 10.0
"""Deadline of one attempt; the kubelet connects back to the plugin before it responds."""

RETRY_SECONDS_MAX: Final = 10.0
"""Maximum time between two attempts to register."""

UNHEARD_SECONDS: Final = 10.0
"""A kubelet without a ListAndWatch call for so long has forgotten the plugin."""

SocketIdentity = tuple[int, int, int]
"""The device, the inode and the time of change in ns of a socket."""

_log: Final = structlog.get_logger("vgpu_native.plugin")


class NotRegistered(Exception):
    """The kubelet rejected the registration; the message is the cause."""


class KubeletRegistration:
    """The registration of the plugin with the kubelet that runs now."""

    def __init__(
        self,
        settings: PluginSettings,
        devices: AdvertisedDevices,
        *,
        has_listener: Callable[[], bool],
    ) -> None:
        """Register once `devices` are known; `has_listener` returns if the kubelet reads them."""
        self._settings, self._devices, self._has_listener = settings, devices, has_listener
        self._kubelet: SocketIdentity | None = None

    @property
    def is_done(self) -> bool:
        """Whether the plugin is registered."""
        return self._kubelet is not None

    def forget(self) -> None:
        """Register again at the next `keep`."""
        self._kubelet = None

    async def keep(self, ours: SocketIdentity) -> None:
        """Register after each restart of the kubelet; return when the plugin's socket is gone."""
        loop = asyncio.get_running_loop()
        answered, failures = loop.time(), 0
        while identity(self._settings.socket) == ours:
            kubelet = identity(self._settings.kubelet_socket)
            if self._has_listener():
                answered = loop.time()
            elif loop.time() - answered > UNHEARD_SECONDS:
                answered, self._kubelet = loop.time(), None
            # Wait for the cards, because an empty list makes the kubelet drop those of its pods.
            if kubelet in (None, self._kubelet) or not self._devices.known:
                pause = self._settings.look_seconds
            else:
                failures = await self._try(kubelet, failures)
                answered, pause = loop.time(), self._pause(failures)
            await asyncio.sleep(pause)

    async def _try(self, kubelet: SocketIdentity, failures: int) -> int:
        """Register, and return the number of consecutive failures."""
        try:
            await register(self._settings)
        except NotRegistered as error:
            _log.warning("plugin_not_registered", error=str(error), failures=failures + 1)
            return failures + 1
        self._kubelet = kubelet
        _log.info("plugin_registered", resource=self._settings.resource)
        return 0

    def _pause(self, failures: int) -> float:
        longest: float = min(
            self._settings.look_seconds * 2 ** min(failures, 10), RETRY_SECONDS_MAX
        )
        return longest * random.uniform(0.5, 1.0)


async def register(settings: PluginSettings) -> None:
    """Register once. Raises NotRegistered."""
    request = RegisterRequest(
        version=API_VERSION,
        endpoint=settings.endpoint,
        resource_name=settings.resource,
        options=OPTIONS,
    )
    try:
        async with grpc.aio.insecure_channel(f"unix:{settings.kubelet_socket}") as channel:
            stub = RegistrationStub(channel)  # type: ignore[no-untyped-call]
            await stub.Register(request, timeout=REGISTER_SECONDS)
    except grpc.aio.AioRpcError as error:
        raise NotRegistered(
            f"kubelet at {settings.kubelet_socket}: {error.code().name}: {error.details()}"
        ) from error


def identity(path: Path) -> SocketIdentity | None:
    """Return an identity that differs for a later socket at the path; None without a socket."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    # A new socket may reuse the inode of its predecessor.
    return (
        (status.st_dev, status.st_ino, status.st_mtime_ns)
        if stat.S_ISSOCK(status.st_mode)
        else None
    )
