"""Devices: what Dynamic Resource Allocation gave to an object, as the ledger records it."""

from typing import Final

import msgspec


class Device(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One device of an allocation: `status.allocation.devices.results[]` of a ResourceClaim.

    `claim` is the name of the claim. `share` is the shareID of a device that several claims share.
    `node` and `card` are the qualified node and the uuid of the card, empty if the device names
    none. `memory` (MiB) and `cores` (percent of a card) are what was consumed of it. With `admin`
    the device is used for administration, and is not charged.
    """

    claim: str
    request: str
    driver: str
    pool: str
    device: str
    share: str = ""
    node: str = ""
    card: str = ""
    memory: int = 0
    cores: int = 0
    admin: bool = False


Devices = tuple[Device, ...]

DEVICES_MAX: Final = 256
"""Most devices that one object records: eight claims of a pod with 32 each."""

RECORDED_SINCE: Final = 5
"""The record schema that brought devices. Decisions leave them out of an older log."""

CLAIM_PART: Final = "resourceclaims/"
"""Begins the name of a placement's part that is a resource claim; no container has such a name."""
