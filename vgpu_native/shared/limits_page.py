"""The limits page: the file from which a container's library reads its limits.

A page is written under another name and renamed, so that no process maps an incomplete page. A
process that has mapped the page sees later changes at once. Each change is one store of an aligned
word of eight bytes, and the generation rises after all of them. A reader between two stores sees
some new and some old values, each of which was valid at some time.
"""

import mmap
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from vgpu_native.shared import layout
from vgpu_native.shared.atomic_file import write_whole
from vgpu_native.shared.binary_fields import RecordFields, place, put_number, put_text
from vgpu_native.shared.layout import (
    DEVICES_MAX,
    LIMITS,
    LIMITS_SIZE,
    MAGIC,
    NO_LIMIT,
    VERSION,
    Field,
)

MEBIBYTE: Final = 1024**2
ALL_CORES: Final = 100
"""Percent of a device's time that means no limit."""

WORD: Final = 8
_READABLE: Final = 0o644
_NUMBERS: Final = ("memory", "cores", "overhead", "granted")


class BadLimitsPage(Exception):
    """A file is not a limits page of this version; the message names the file and the cause."""


class DeviceLimits(msgspec.Struct, frozen=True):
    """A container's limits of a device: bytes (`NO_LIMIT`: all) and percent of its time.

    `overhead` are bytes that its processes use and the library does not count. `granted` are the
    bytes of the previous, higher limit until usage is within the new limit; 0 otherwise.
    """

    uuid: str
    memory: int = NO_LIMIT
    cores: int = ALL_CORES
    overhead: int = 0
    granted: int = 0

    @property
    def most(self) -> int:
        """The larger of this limit and the previous limit, in bytes."""
        return max(self.memory, self.granted)


class ContainerLimits(msgspec.Struct, frozen=True):
    """The content of a limits page; `devices` are in the container's device order."""

    devices: tuple[DeviceLimits, ...]
    flags: int = 0
    generation: int = 1


def encode(limits: ContainerLimits) -> bytes:
    """Return the bytes of a limits page. Raises ValueError naming a value that does not fit."""
    if len(limits.devices) > DEVICES_MAX:
        raise ValueError(f"{len(limits.devices)} devices: a container has {DEVICES_MAX} at most")
    content = bytearray(LIMITS_SIZE)
    for name, number in (
        ("magic", MAGIC),
        ("version", VERSION),
        ("size", LIMITS_SIZE),
        ("devices", len(limits.devices)),
        ("generation", limits.generation),
        ("flags", limits.flags),
    ):
        put_number(content, LIMITS[name], number)
    for index, device in enumerate(limits.devices):
        _check(device)
        put_text(content, LIMITS["uuid"], device.uuid, index)
        for name, number in _numbers(device):
            put_number(content, LIMITS[name], number, index)
    return bytes(content)


def decode(content: bytes, source: str = "the limits page") -> ContainerLimits:
    """Return the limits of a page's bytes. Raises BadLimitsPage."""
    if len(content) != LIMITS_SIZE:
        raise BadLimitsPage(f"{source}: {len(content)} bytes, but a limits page has {LIMITS_SIZE}")
    words = RecordFields(content)
    header = tuple(words.number(LIMITS[name]) for name in ("magic", "version", "size"))
    if header != (MAGIC, VERSION, LIMITS_SIZE):
        raise BadLimitsPage(
            f"{source}: it begins with {header}: not a limits page of version {VERSION}"
        )
    count = words.number(LIMITS["devices"])
    if count > DEVICES_MAX:
        raise BadLimitsPage(f"{source}: {count} devices, of {DEVICES_MAX} at most")
    return ContainerLimits(
        tuple(_device(words, index) for index in range(count)),
        words.number(LIMITS["flags"]),
        words.number(LIMITS["generation"]),
    )


def write(path: Path, limits: ContainerLimits) -> None:
    """Write a limits page atomically. Raises OSError, ValueError.

    The page replaces an existing one. Processes that have mapped the old page keep it.
    """
    write_whole(path, encode(limits), _READABLE)


def read(path: Path) -> ContainerLimits:
    """Return the limits of a page. Raises BadLimitsPage, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return decode(os.pread(descriptor, LIMITS_SIZE + 1, 0), str(path))
    finally:
        os.close(descriptor)


class LimitsPage:
    """An existing limits page, mapped for changes in place."""

    def __init__(self, path: Path) -> None:
        """Map a limits page. Raises BadLimitsPage, OSError."""
        self._path = path
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            content = os.pread(descriptor, LIMITS_SIZE + 1, 0)
            self._limits = decode(content, str(path))
            self._map = mmap.mmap(descriptor, LIMITS_SIZE)
            self._file = os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)
        # A store of an eight-byte word is atomic; a store of bytes need not be.
        self._words = memoryview(self._map).cast("B").cast("Q")

    @property
    def limits(self) -> ContainerLimits:
        """The limits on the page; no other process writes it."""
        return self._limits

    def change(self, limits: ContainerLimits) -> bool:
        """Change the limits of the page's devices; return whether they differ from before.

        Raises ValueError unless the devices are the same, in the same order.
        """
        before = self._limits
        if [device.uuid for device in before.devices] != [device.uuid for device in limits.devices]:
            raise ValueError(f"{self._path}: a page keeps its devices; write another one instead")
        for device in limits.devices:
            _check(device)
        after = msgspec.structs.replace(limits, generation=before.generation)
        if after == before:
            return False
        self._store(LIMITS["flags"], after.flags)
        for index, device in enumerate(after.devices):
            for name, number in _numbers(device):
                self._store(LIMITS[name], number, index)
        after = msgspec.structs.replace(after, generation=before.generation + 1)
        self._store(LIMITS["generation"], after.generation)
        self._limits = after
        return True

    def is_current(self) -> bool:
        """Return whether this is still the page at its path, and was not replaced or removed."""
        try:
            return self._path.lstat().st_ino == self._file
        except OSError:
            return False

    def close(self) -> None:
        """Unmap the page, which keeps its content."""
        self._words.release()
        self._map.close()

    def __enter__(self) -> Self:
        """Return the page for a block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Unmap the page."""
        self.close()

    def _store(self, field: Field, number: int, index: int = 0) -> None:
        at = place(field, index)
        assert (at % WORD, field.width) == (0, WORD), f"{field.name} is not an aligned word"
        if self._words[at // WORD] != number:
            self._words[at // WORD] = number


def flags_of(
    *,
    may_disable: bool = False,
    oversubscribe: bool = False,
    cores_off: bool = False,
    contexts_exempt: bool = False,
) -> int:
    """Return the flags of a limits page."""
    return (
        layout.MAY_DISABLE * may_disable
        | layout.OVERSUBSCRIBE * oversubscribe
        | layout.CORES_OFF * cores_off
        | layout.CONTEXTS_EXEMPT * contexts_exempt
    )


def _numbers(device: DeviceLimits) -> tuple[tuple[str, int], ...]:
    return tuple((name, getattr(device, name)) for name in _NUMBERS)


def _device(words: RecordFields, index: int) -> DeviceLimits:
    return DeviceLimits(
        words.text(LIMITS["uuid"], index),
        *(words.number(LIMITS[name], index) for name in _NUMBERS),
    )


def _check(device: DeviceLimits) -> None:
    """Raise ValueError, naming the field, if a value does not fit the page."""
    if not device.uuid.isascii() or not device.uuid.isprintable() or not device.uuid:
        raise ValueError(f"uuid {device.uuid!r}: must be visible ASCII")
    for name, number in _numbers(device):
        if not 0 <= number <= NO_LIMIT:
            raise ValueError(f"{name} {number} of {device.uuid}: not from 0 to {NO_LIMIT}")


assert sys.byteorder == "little", "the library and its files are for little-endian machines"
