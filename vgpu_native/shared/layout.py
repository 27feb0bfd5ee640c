"""The layout of the two files that the library, the agent and the tests share.

The node agent writes the **limits page**; the library maps it read-only. The **usage region** holds
the usage of each process of a container. Tenants can write it, so readers check every value.
`tools/generate_layout.py` writes the same numbers as a C header.

Every field is little-endian and naturally aligned. A field with concurrent readers and writers is
one word of eight bytes, loaded and stored atomically. So the files need no lock, and a killed
process leaves no half-written word.
"""

from typing import Final

import msgspec

DEVICES_MAX: Final = 16
"""Devices of one container."""

SLOTS_MAX: Final = 256
"""Processes of one container that use a device at the same time."""

UUID_BYTES: Final = 48
"""Bytes for `GPU-` or `MIG-` and a uuid as text, with a terminating zero."""

NO_LIMIT: Final = 2**64 - 1
"""The value of a limit in bytes that means no limit."""


class Field(msgspec.Struct, frozen=True):
    """One field: its offset, the width of a value in bytes, and the number of values.

    Values begin `step` bytes apart; with 0 they are contiguous.
    """

    name: str
    offset: int
    width: int
    count: int = 1
    step: int = 0

    @property
    def end(self) -> int:
        """Return the offset behind the field."""
        return self.offset + (self.step or self.width) * (self.count - 1) + self.width


class Layout(msgspec.Struct, frozen=True):
    """A record of `size` bytes, and its fields in order."""

    name: str
    size: int
    fields: tuple[Field, ...]

    def __getitem__(self, name: str) -> Field:
        """Return a field. Raises KeyError."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)


MAGIC: Final = 0x55504756
"""`VGPU`."""

VERSION: Final = 2
"""A reader refuses other versions."""

LIMITS_SIZE: Final = 4096

LIMITS: Final = Layout(
    "limits",
    LIMITS_SIZE,
    (
        Field("magic", 0, 4),
        Field("version", 4, 4),
        Field("size", 8, 4),
        Field("devices", 12, 4),
        # Rises by one after every change, so that readers can detect a change.
        Field("generation", 16, 8),
        Field("flags", 24, 8),
        Field("uuid", 64, UUID_BYTES, DEVICES_MAX),
        # Bytes, or NO_LIMIT.
        Field("memory", 1024, 8, DEVICES_MAX),
        # Percent of the device's time; 100 means no limit.
        Field("cores", 1152, 8, DEVICES_MAX),
        # Bytes that processes use and the library does not count, as measured by the agent.
        Field("overhead", 1280, 8, DEVICES_MAX),
        # Bytes of the previous, higher limit while usage exceeds the new limit; else 0.
        Field("granted", 1408, 8, DEVICES_MAX),
    ),
)

MAY_DISABLE: Final = 1
"""Flag: the container's own environment may switch limits off."""

OVERSUBSCRIBE: Final = 2
"""Flag: the library allocates memory beyond the card's size as managed memory."""

CORES_OFF: Final = 4
"""Flag: no enforcement of the time limit (`CoreLimitSwitch`, `GPU_CORE_UTILIZATION_POLICY`)."""

CONTEXTS_EXEMPT: Final = 8
"""Flag: the memory of contexts and code does not count against the limit."""

OWNER_DIED: Final = 0x4000_0000
"""The bit of a slot's owner that the kernel sets when the owning thread ends."""

OWNER_THREAD: Final = 0x3FFF_FFFF
"""The bits of a slot's owner that name a thread."""

USES_SIZE: Final = SLOTS_MAX * 8

USES: Final = Layout(
    "uses",
    USES_SIZE,
    # By slot, contiguous, because each reservation sums the values of all slots.
    (Field("slot", 0, 8, SLOTS_MAX),),
)

SLOT_SIZE: Final = 256

SLOT: Final = Layout(
    "slot",
    SLOT_SIZE,
    (
        # Nanoseconds for which the process kept the device busy, since its start.
        Field("busy", 0, 8, DEVICES_MAX),
        # A robust futex: the id of the owning thread, with OWNER_DIED set by the kernel when the
        # thread ends. Readers ignore a slot without a living owner. 0: never owned.
        Field("owner", 128, 4),
        # For diagnosis only; no decision depends on it.
        Field("pid", 192, 8),
        Field("attached", 200, 8),
    ),
)

BUDGET_SIZE: Final = 64

BUDGET: Final = Layout(
    "budget",
    BUDGET_SIZE,
    (
        # CLOCK_MONOTONIC nanoseconds up to which the container has used its share of the device.
        # Usage advances the value by usage / share. Work may begin while the value is not ahead of
        # the clock. The value never lags the clock by more than one burst. It needs no refill,
        # because the clock advances.
        Field("used_until", 0, 8),
        # Measured nanoseconds for which the container's processes kept the device busy, in total.
        Field("spent", 8, 8),
        # CLOCK_MONOTONIC nanoseconds until which no further long-waiting process may continue
        # while the share is used up.
        Field("let_on", 16, 8),
    ),
)

SHARES_MAX: Final = 128
"""Allocations of one container that its processes share at the same time."""

SHARE_SIZE: Final = 48

SHARE: Final = Layout(
    "share",
    SHARE_SIZE,
    (
        # Identifies the exported memory to the processes that import it.
        Field("key", 0, 8),
        # From the lowest bit: 4 bits of device, 8 of the exporter's slot, 8 that change with each
        # new export, and the size in steps of 512 bytes.
        Field("what", 8, 8),
        # A bit for the slot of each process that holds the memory. It is charged once, while one
        # of them lives.
        Field("holders", 16, 8, SLOTS_MAX // 64),
    ),
)

SHARE_DEVICE_BITS: Final = 4
SHARE_SIZE_SHIFT: Final = 20
SHARE_STEP: Final = 512

USED_AT: Final = 8192
SLOTS_AT: Final = USED_AT + DEVICES_MAX * USES_SIZE
REGION_SIZE: Final = SLOTS_AT + SLOTS_MAX * SLOT_SIZE

REGION: Final = Layout(
    "region",
    REGION_SIZE,
    (
        Field("magic", 0, 4),
        Field("version", 4, 4),
        Field("size", 8, 4),
        Field("slots", 12, 4),
        Field("slot_size", 16, 4),
        # Upper half: identifies the boot, because the kernel marks no owners of an earlier boot.
        # Lower half: distinguishes regions at the same path.
        Field("generation", 24, 8),
        # Slots from this one on were never owned; it only rises.
        Field("high", 64, 8),
        # CLOCK_MONOTONIC nanoseconds until which a process near the limit keeps others waiting.
        Field("gate", 128, 8),
        # Shares from this one on were never used; it only rises.
        Field("shares_high", 192, 8),
        # Devices in the order of their first use, each once, followed by empty entries.
        Field("uuid", 256, UUID_BYTES, DEVICES_MAX),
        Field("budget", 1024, BUDGET_SIZE, DEVICES_MAX),
        Field("share", 2048, SHARE_SIZE, SHARES_MAX),
        # Bytes that processes use, by device; only the living owner of a slot writes its value.
        Field("used", USED_AT, USES_SIZE, DEVICES_MAX),
        Field("slot", SLOTS_AT, SLOT_SIZE, SLOTS_MAX),
    ),
)

LAYOUTS: Final = (LIMITS, REGION, USES, SLOT, BUDGET, SHARE)
CONSTANTS: Final = {
    "MAGIC": MAGIC,
    "VERSION": VERSION,
    "DEVICES_MAX": DEVICES_MAX,
    "SLOTS_MAX": SLOTS_MAX,
    "SHARES_MAX": SHARES_MAX,
    "SHARE_DEVICE_BITS": SHARE_DEVICE_BITS,
    "SHARE_SIZE_SHIFT": SHARE_SIZE_SHIFT,
    "SHARE_STEP": SHARE_STEP,
    "UUID_BYTES": UUID_BYTES,
    "OWNER_DIED": OWNER_DIED,
    "OWNER_THREAD": OWNER_THREAD,
    "MAY_DISABLE": MAY_DISABLE,
    "OVERSUBSCRIBE": OVERSUBSCRIBE,
    "CORES_OFF": CORES_OFF,
    "CONTEXTS_EXEMPT": CONTEXTS_EXEMPT,
}
