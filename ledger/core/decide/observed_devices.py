"""Observed devices: what an observation records of the devices that resource claims gave.

A log of an older schema has no devices. There an object keeps the charge that was reserved for it,
unless its devices take more.
"""

from msgspec import structs

from ledger.core.model.amounts import Amounts, covers, largest, smallest
from ledger.core.model.commands import Observe
from ledger.core.model.devices import DEVICES_MAX, RECORDED_SINCE, Devices
from ledger.core.model.events import Cause
from ledger.core.model.state import Entry, Object, State


def with_recorded_devices(state: State, entry: Entry, command: Observe) -> Observe:
    """Return an observation with the devices, and the demand, that the log records for it.

    A sender that does not read allocations changes no devices. Its demand does not raise the
    charge of an object with devices either, unless a reviewed update ends in it.
    """
    known = devices_of(entry.committed, command.uid)
    if not command.devices and not known:
        return command
    if 0 < state.schema < RECORDED_SINCE:
        return structs.replace(command, devices=(), demand=_reserved(entry, command))
    if command.devices is not None:
        return structs.replace(command, devices=command.devices[:DEVICES_MAX])
    demand, stored = command.demand, entry.committed
    ends = any(hold.uid == command.uid and hold.base < command.version for hold in entry.holds)
    if stored is not None and not ends:
        demand = smallest(demand, stored.demand)
    return structs.replace(command, devices=known, demand=demand)


def devices_of(stored: Object | None, uid: str) -> Devices:
    """Return the devices of the stored object of a key if it has this uid."""
    return stored.devices if stored is not None and stored.uid == uid else ()


def cause_of_rise(stored: Object | None, command: Observe, *, held: bool) -> Cause:
    """Return why an observed object is charged more than before, or without a reservation.

    `held` is set when a hold of the object ends in the observation. A change of the devices within
    what was charged before the first of them is the end of an allocation. An object without a
    demand is recorded for its devices alone, which are used for administration.
    """
    devices, is_known = command.devices or (), stored is not None and stored.uid == command.uid
    if not command.demand:
        return Cause.ALLOCATED
    if devices == devices_of(stored, command.uid) or not (is_known or held):
        return Cause.UNRESERVED
    bound = stored.bound if is_known and stored is not None else None
    if not devices or (bound is not None and covers(bound, command.demand)):
        return Cause.UNALLOCATED
    return Cause.ALLOCATED


def _reserved(entry: Entry, command: Observe) -> Amounts:
    """Return the demand of an observation, at least what was charged for its object before."""
    demand = command.demand
    for body in entry.bodies():
        if body.uid == command.uid:
            demand = largest(demand, body.demand)
    return demand
