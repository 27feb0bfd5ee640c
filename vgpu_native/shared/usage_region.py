"""Usage regions: what a container's processes use, read from a file that the container can write.

The reader trusts no value. It uses `pread` and never maps the file, so that a file truncated during
the read causes a short read and no signal. It follows no link and opens regular files only, because
a container may create device nodes, and opening a device can have effects. Sums saturate at the
largest number instead of wrapping. The values are claims of the container; the agent compares them
with the driver's values.
"""

import os
import stat
from collections.abc import Set
from pathlib import Path
from typing import Final

import msgspec

from vgpu_native.shared.binary_fields import RecordFields
from vgpu_native.shared.layout import (
    BUDGET,
    DEVICES_MAX,
    MAGIC,
    OWNER_DIED,
    OWNER_THREAD,
    REGION,
    REGION_SIZE,
    SHARE,
    SHARE_DEVICE_BITS,
    SHARE_SIZE_SHIFT,
    SHARE_STEP,
    SHARES_MAX,
    SLOT,
    SLOTS_MAX,
    USES,
    VERSION,
)

LARGEST: Final = 2**63 - 1
"""The value at which sums saturate; no device has as much."""

_FINDING: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_ATTEMPTS: Final = 3


class BadRegion(Exception):
    """A file is not a region of this version; the message names the file and the cause."""


class DeviceUse(msgspec.Struct, frozen=True):
    """A container's usage of a device: bytes in use, and busy nanoseconds in total."""

    uuid: str
    memory: int
    busy: int


class RegionProcess(msgspec.Struct, frozen=True):
    """A process that uses devices: its pid in the container, and bytes per device.

    Memory that it shares with other processes is not included.
    """

    pid: int
    memory: tuple[int, ...]


class UsageRegion(msgspec.Struct, frozen=True):
    """The claims of a region. `generation` distinguishes regions at the same path."""

    generation: int
    devices: tuple[DeviceUse, ...]
    processes: tuple[RegionProcess, ...]

    def memory_of(self, uuid: str) -> int:
        """Return the bytes in use on a device."""
        return min(sum(device.memory for device in self.devices if device.uuid == uuid), LARGEST)

    def busy_of(self, uuid: str) -> int:
        """Return the busy nanoseconds of a device."""
        return min(sum(device.busy for device in self.devices if device.uuid == uuid), LARGEST)


def read(path: Path) -> UsageRegion:
    """Return the claims of a region. Raises BadRegion; FileNotFoundError if there is no file."""
    return decode(_content(path), str(path))


def decode(content: bytes, source: str = "the region") -> UsageRegion:
    """Return the claims of a region's bytes. Raises BadRegion."""
    if len(content) != REGION_SIZE:
        raise BadRegion(f"{source}: {len(content)} bytes, but a region has {REGION_SIZE}")
    words = RecordFields(content)
    header = tuple(words.number(REGION[name]) for name in ("magic", "version", "size", "slots"))
    if header != (MAGIC, VERSION, REGION_SIZE, SLOTS_MAX):
        raise BadRegion(f"{source}: it begins with {header}: not a region of version {VERSION}")
    high = min(words.number(REGION["high"]), SLOTS_MAX)
    uuids = _uuids(words)
    living = [at for at in range(high) if _lives(words.at(REGION["slot"], at))]
    # Read all values of a device at once, so that a full region is not expensive to read.
    columns = [words.at(REGION["used"], at).numbers(USES["slot"]) for at in range(len(uuids))]
    processes = tuple(_process(words, at, columns) for at in living)
    shared = _shared(words, frozenset(living))
    used = [
        sum(column[at] for at in living) + shared.get(device, 0)
        for device, column in enumerate(columns)
    ]
    spent = [words.at(REGION["budget"], at).number(BUDGET["spent"]) for at in range(len(uuids))]
    devices = tuple(
        DeviceUse(uuid, min(memory, LARGEST), min(busy, LARGEST))
        for uuid, memory, busy in zip(uuids, used, spent, strict=True)
    )
    return UsageRegion(words.number(REGION["generation"]), devices, processes)


def _content(path: Path) -> bytes:
    """Read a file of any type. Raises BadRegion, FileNotFoundError."""
    try:
        handle = os.open(path, _FINDING)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadRegion(f"{path}: {error.strerror}; a region is a file") from error
    try:
        return _read(handle, path)
    except OSError as error:
        raise BadRegion(f"{path}: {error.strerror}") from error
    finally:
        os.close(handle)


def _read(handle: int, path: Path) -> bytes:
    """Open and read a found path if it is a regular file. Raises BadRegion, OSError."""
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode):
        raise BadRegion(f"{path}: it is not a file")
    if state.st_size != REGION_SIZE:
        raise BadRegion(f"{path}: {state.st_size} bytes, but a region has {REGION_SIZE}")
    descriptor = os.open(f"/proc/self/fd/{handle}", _OPENING)
    try:
        return _whole(descriptor)
    finally:
        os.close(descriptor)


def _whole(descriptor: int) -> bytes:
    """Read a region; a file truncated during the read returns fewer bytes."""
    content = b""
    for _ in range(_ATTEMPTS):
        more = os.pread(descriptor, REGION_SIZE - len(content), len(content))
        content += more
        if not more or len(content) == REGION_SIZE:
            break
    return content


def _uuids(words: RecordFields) -> list[str]:
    """Return the region's device uuids, up to the first invalid one."""
    uuids: list[str] = []
    for index in range(DEVICES_MAX):
        uuid = words.text(REGION["uuid"], index)
        if not uuid:
            break
        uuids.append(uuid)
    return uuids


def _lives(slot: RecordFields) -> bool:
    """Return whether the slot's owner lives, by the futex word that the kernel updates."""
    word = slot.number(SLOT["owner"])
    return bool(word & OWNER_THREAD) and not word & OWNER_DIED


def _shared(words: RecordFields, living: Set[int]) -> dict[int, int]:
    """Return the bytes of shares by device: each counts once, while one of its holders lives."""
    shared: dict[int, int] = {}
    for at in range(min(words.number(REGION["shares_high"]), SHARES_MAX)):
        share = words.at(REGION["share"], at)
        what, holders = share.number(SHARE["what"]), share.numbers(SHARE["holders"])
        if any(holders[slot // 64] >> slot % 64 & 1 for slot in living):
            device = what & (1 << SHARE_DEVICE_BITS) - 1
            shared[device] = shared.get(device, 0) + (what >> SHARE_SIZE_SHIFT) * SHARE_STEP
    return shared


def _process(words: RecordFields, at: int, columns: list[tuple[int, ...]]) -> RegionProcess:
    pid = words.at(REGION["slot"], at).number(SLOT["pid"])
    return RegionProcess(min(pid, LARGEST), tuple(min(column[at], LARGEST) for column in columns))
