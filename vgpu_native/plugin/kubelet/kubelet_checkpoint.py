"""Kubelet checkpoint: the devices of each container, with the plugin's response.

The file is internal to the kubelet and not an interface. But only this file names pods by uid, has
init containers, and holds the plugin's responses, whose marks identify allocations. The plugin uses
the pod-resources API for all other data.
"""

import re
from pathlib import Path
from typing import Final

import msgspec
from google.protobuf.message import DecodeError

from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2 import ContainerAllocateResponse

BYTES_MAX: Final = 64 * 1024**2
"""Maximum size of the file."""

MARK: Final = "gpuledger.io/allocation"
"""The annotation of a response that names its allocation."""

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
"""The variable that names the cards to NVIDIA's container runtime."""

LIMITS_AT: Final = "/etc/gpuledger/limits"
"""The path of the limits page in the container."""

_TOKEN: Final = re.compile(r"a[0-9a-f]{24}(-[0-9]{1,4})?")


class BadCheckpoint(Exception):
    """The file is not a kubelet's checkpoint; the message names the file and the cause."""


class CheckpointEntry(msgspec.Struct, frozen=True):
    """The devices of one container and its response; `token` is empty for another plugin's."""

    uid: str
    container: str
    ids: frozenset[str]
    token: str
    cards: tuple[str, ...] = ()
    limited: bool = False
    cdi: bool = False


class _Devices(msgspec.Struct, frozen=True, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str = ""
    resource_name: str = ""
    # By NUMA node; old kubelets wrote one list.
    device_ids: dict[str, list[str]] | list[str] | None = msgspec.field(
        name="DeviceIDs", default=None
    )
    alloc_resp: bytes | None = None


class _Data(msgspec.Struct, frozen=True, rename="pascal"):
    pod_device_entries: tuple[_Devices, ...] | None = None


class _File(msgspec.Struct, frozen=True, rename="pascal"):
    data: _Data


def version(path: Path) -> tuple[int, int, int] | None:
    """Return a version that differs after each write of the file; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def read(path: Path, resource: str) -> tuple[CheckpointEntry, ...]:
    """Return the entries of a resource. Raises BadCheckpoint, also without a file."""
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise BadCheckpoint(f"{path}: {error}") from error
    if len(content) > BYTES_MAX:
        raise BadCheckpoint(f"{path}: more than {BYTES_MAX} bytes")
    try:
        checkpoint = msgspec.json.decode(content, type=_File)
        entries = checkpoint.data.pod_device_entries or ()
        return tuple(_entry(entry) for entry in entries if entry.resource_name == resource)
    except (msgspec.MsgspecError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadCheckpoint(f"{path}: {error}") from error


def _entry(entry: _Devices) -> CheckpointEntry:
    devices = entry.device_ids or ()
    lists = devices.values() if isinstance(devices, dict) else (devices,)
    answer = ContainerAllocateResponse.FromString(entry.alloc_resp or b"")
    ids = frozenset(device for several in lists for device in several)
    token = answer.annotations.get(MARK, "")
    # The token becomes the name of a directory.
    if not _TOKEN.fullmatch(token):
        return CheckpointEntry(entry.pod_uid, entry.container_name, ids, "")
    return CheckpointEntry(
        entry.pod_uid,
        entry.container_name,
        ids,
        token,
        tuple(card for card in answer.envs.get(VISIBLE, "").split(",") if card),
        any(mount.container_path == LIMITS_AT for mount in answer.mounts),
        bool(answer.cdi_devices),
    )
