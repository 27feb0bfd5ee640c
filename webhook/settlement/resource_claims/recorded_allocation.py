"""Recorded allocation: the charge of devices that no ResourceSlice has any more. Pure.

An allocation is written once. A driver may withdraw its slices while it restarts, so the slices
cannot show the size and the type of an allocated device then. The ledger has both.
"""

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.devices import DEVICES_MAX, Device
from ledger.core.model.state import Entry, Object
from webhook.context.admitted_demand import NOTHING_AWAITED
from webhook.settlement.observation_commands import ObservedObject


def with_recorded_allocation(entry: Entry | None, seen: ObservedObject) -> ObservedObject:
    """Return the observation with the recorded devices and demand if slices lack its devices.

    `entry` is that of the object's key. An observation with other devices than the recorded ones
    is returned as it is. Native resources, which a resize changes, are those of the observation.
    """
    stored = entry.committed if entry is not None else None
    if stored is None or stored.uid != seen.uid or not seen.devices or seen.gated:
        return seen
    devices = seen.devices[:DEVICES_MAX]
    if [*map(_names, devices)] != [*map(_names, stored.devices)]:
        return seen
    pairs = zip(devices, stored.devices, strict=True)
    if not any(_is_in_a_slice(known) and not _is_in_a_slice(device) for device, known in pairs):
        return seen
    return msgspec.structs.replace(
        seen,
        devices=stored.devices,
        demand=_demand(stored, seen),
        assumed=(),
        awaited=NOTHING_AWAITED,
    )


def _demand(stored: Object, seen: ObservedObject) -> Amounts:
    """Return the recorded amounts of devices and the observed ones of native resources."""
    if seen.problem:
        return stored.demand
    devices = {name: amount for name, amount in stored.demand.items() if "/" in name}
    native = {name: amount for name, amount in seen.demand.items() if "/" not in name}
    return devices | native


def _names(device: Device) -> tuple[str, ...]:
    """Return the names that the status of a claim has of a device."""
    return (
        device.claim,
        device.request,
        device.driver,
        device.pool,
        device.device,
        device.share,
    )


def _is_in_a_slice(device: Device) -> bool:
    """Return whether a slice has named the node or the card of a device."""
    return bool(device.node or device.card)
