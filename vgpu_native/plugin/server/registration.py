"""Registration of the plugin with the kubelet, and the identity of a socket."""

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
"""Deadline of one attempt; the kubelet connects back to the plugin before it responds."""


class NotRegistered(Exception):
    """The kubelet rejected the registration; the message is the cause."""


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
    """Return an identity that differs for a later socket at the path; None without a socket."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    # A new socket may reuse the inode of its predecessor.
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None
