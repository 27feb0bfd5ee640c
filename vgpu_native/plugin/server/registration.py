"""Registering: telling the kubelet that the plugin is there, and noticing when it has forgotten."""

import os
import stat
from pathlib import Path
from typing import Final

import grpc

from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2 import RegisterRequest
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2_grpc import RegistrationStub
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.plugin.server.plugin_service import OPTIONS

API_VERSION: Final = "v1beta1"

REGISTER_SECONDS: Final = 10.0
"""Deadline of one attempt; the kubelet connects back to us before it answers."""


class NotRegistered(Exception):
    """The kubelet did not take the registration; the text says why."""


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


def identity(path: Path) -> tuple[int, int, int] | None:
    """Return what tells a socket from one that is made later at its path; None without a socket."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    # An inode alone can be that of its predecessor.
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None
