"""Layout: the two files that the library, the agent and tests share, described once.

The **limits page** is written by the node agent and read by the library, which maps it read-only.
The **region** holds what each process of a container uses. Tenants can write it, so that nothing in
it is believed without a look. `tools/generate_layout.py` writes the same numbers as a C header.

Every field is little-endian and naturally aligned. A field that processes write while others read
is one word of eight bytes, stored and loaded whole: there is nothing to lock, and a process that is
killed leaves no half-written word.
"""

from typing import Final

import msgspec

DEVICES_MAX: Final = 16
"""Devices of one container."""

SLOTS_MAX: Final = 256
"""Processes of one container that use a device at the same time."""

UUID_BYTES: Final = 48
"""Room for `GPU-` or `MIG-` and a uuid as text, ended by a zero."""

NO_LIMIT: Final = 2**64 - 1
"""In the place of bytes: there is no limit."""


class Field(msgspec.Struct, frozen=True):
    """One field: where it begins, the width of its values in bytes, and how many there are.

    Between the values lie `step` bytes; without it they follow one another.
    """

    name: str
    offset: int
    width: int
    count: int = 1
    step: int = 0

    @property
    def end(self) -> int:
        """Return where the next field may begin."""
        return self.offset + (self.step or self.width) * (self.count - 1) + self.width


class Layout(msgspec.Struct, frozen=True):
    """A record of so many bytes, and its fields in order."""

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
        # Goes up by one after every change, so that whoever looks can tell that there was one.
        Field("generation", 16, 8),
        Field("flags", 24, 8),
        Field("uuid", 64, UUID_BYTES, DEVICES_MAX),
        # Bytes; NO_LIMIT where there is none.
        Field("memory", 1024, 8, DEVICES_MAX),
        # Percent of the device's time, 100 where there is no limit.
        Field("cores", 1152, 8, DEVICES_MAX),
        # Bytes that processes use beyond what the library counts, seen by the agent.
        Field("overhead", 1280, 8, DEVICES_MAX),
        # Bytes of the limit before it was lowered, while more than the new one is in use; else 0.
        Field("granted", 1408, 8, DEVICES_MAX),
    ),
)

MAY_DISABLE: Final = 1
"""Flag: the container's own environment may switch limits off."""

OVERSUBSCRIBE: Final = 2
"""Flag: memory beyond the card is given as managed memory."""

CORES_OFF: Final = 4
"""Flag: the limit of time is not enforced (`CoreLimitSwitch`, `GPU_CORE_UTILIZATION_POLICY`)."""

OWNER_DIED: Final = 0x4000_0000
"""In the owner of a slot: the kernel saw that thread end."""

OWNER_THREAD: Final = 0x3FFF_FFFF
"""The bits of a slot's owner that name a thread."""

USES_SIZE: Final = SLOTS_MAX * 8

USES: Final = Layout(
    "uses",
    USES_SIZE,
    # By slot, side by side: whoever reserves adds up those of all slots.
    (Field("slot", 0, 8, SLOTS_MAX),),
)

SLOT_SIZE: Final = 256

SLOT: Final = Layout(
    "slot",
    SLOT_SIZE,
    (
        # Nanoseconds for which the process kept the device busy, ever.
        Field("busy", 0, 8, DEVICES_MAX),
        # A robust futex: the thread that owns the slot, and OWNER_DIED once the kernel has seen it
        # end. What a slot without a living owner says counts no more. 0: never owned.
        Field("owner", 128, 4),
        # For people who look; nothing is decided by it.
        Field("pid", 192, 8),
        Field("attached", 200, 8),
    ),
)

BUDGET_SIZE: Final = 64

BUDGET: Final = Layout(
    "budget",
    BUDGET_SIZE,
    (
        # CLOCK_MONOTONIC nanoseconds up to which the container's share of the device is used: what
        # it uses moves this forward by use / share. Time passes, so that nothing need be refilled;
        # work may begin while this is not ahead of the clock, and it never lags by more than one
        # burst.
        Field("used_until", 0, 8),
        # Nanoseconds for which all its processes kept the device busy, ever, as far as measured.
        Field("spent", 8, 8),
        # CLOCK_MONOTONIC nanoseconds until which no further process goes on that has waited long,
        # while the share is used.
        Field("let_on", 16, 8),
    ),
)

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
        # Upper half: of which boot it is, because no kernel saw the owners of an earlier one end.
        # Lower half: tells regions at the same path apart.
        Field("generation", 24, 8),
        # Slots from this one on were never owned; it only rises.
        Field("high", 64, 8),
        # CLOCK_MONOTONIC nanoseconds until which somebody near the limit asks to be let alone.
        Field("gate", 128, 8),
        # Devices by the order in which they were met, each once; empty ones follow.
        Field("uuid", 256, UUID_BYTES, DEVICES_MAX),
        Field("budget", 1024, BUDGET_SIZE, DEVICES_MAX),
        # What processes use of each device, in bytes; only a slot's owner writes it while it lives.
        Field("used", USED_AT, USES_SIZE, DEVICES_MAX),
        Field("slot", SLOTS_AT, SLOT_SIZE, SLOTS_MAX),
    ),
)

LAYOUTS: Final = (LIMITS, REGION, USES, SLOT, BUDGET)
CONSTANTS: Final = {
    "MAGIC": MAGIC,
    "VERSION": VERSION,
    "DEVICES_MAX": DEVICES_MAX,
    "SLOTS_MAX": SLOTS_MAX,
    "UUID_BYTES": UUID_BYTES,
    "OWNER_DIED": OWNER_DIED,
    "OWNER_THREAD": OWNER_THREAD,
    "MAY_DISABLE": MAY_DISABLE,
    "OVERSUBSCRIBE": OVERSUBSCRIBE,
    "CORES_OFF": CORES_OFF,
}
