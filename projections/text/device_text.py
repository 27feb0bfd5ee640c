"""Wording of devices: what resource claims gave to an object, in answers and as people read it."""

from itertools import islice
from typing import Final

import msgspec

from ledger.core.model.devices import Device, Devices
from ledger.core.model.qualified_names import local_name

LISTED_MAX: Final = 8
"""How many devices are named; the rest is counted."""


class HeldDevice(msgspec.Struct, frozen=True):
    """A device of an allocation; see `ledger.core.model.devices.Device`.

    `node` is the name of the node in the cluster of the holder. `memory` is in MiB, `cores` in
    percent of a card.
    """

    claim: str
    request: str
    driver: str
    pool: str
    device: str
    share: str
    node: str
    card: str
    memory: int
    cores: int
    admin: bool


def held_devices(devices: Devices) -> tuple[HeldDevice, ...]:
    """Return the recorded devices of a holder in the order of the record."""
    return tuple(map(_held, devices))


def devices_in_words(devices: Devices) -> str:
    """Return the text about the devices of an object, empty without any."""
    shown = ", ".join(map(device_in_words, islice(devices, LISTED_MAX)))
    rest = len(devices) - LISTED_MAX
    return f"has {shown}{f' and {rest} more' if rest > 0 else ''}" if devices else ""


def _held(device: Device) -> HeldDevice:
    fields = msgspec.structs.asdict(device)
    return HeldDevice(**fields | {"node": local_name(device.node) if device.node else ""})


def device_in_words(device: Device | HeldDevice) -> str:
    """Return the text about a device: its name, its share and card, and the consumed amounts."""
    facts = (
        f"device {device.device} of pool {device.pool} of {device.driver}",
        f"share {device.share}" if device.share else "",
        f"card {device.card}" if device.card else "",
        f"{device.memory} MiB" if device.memory else "",
        f"{device.cores} %" if device.cores else "",
        "for administration" if device.admin else "",
    )
    return " ".join(filter(None, facts))
