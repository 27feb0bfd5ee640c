"""Allocation: the amounts and devices that kube-scheduler gave to a resource claim."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts, plus, without_zeros
from ledger.core.model.devices import Device, Devices
from ledger.kube.requests.quantities import QuantityError, parse_nano
from ledger.kube.resource_claims.claim_world import ClaimWorld
from ledger.kube.resource_claims.device_amounts import (
    DeviceAmounts,
    amounts_of_device,
    resources_of_device,
    types_of,
)
from ledger.kube.resource_claims.device_classes import DriverMapping, MappedClass
from ledger.kube.resource_claims.device_shapes import plain
from ledger.kube.resource_claims.dra_objects import (
    RESULTS_MAX,
    AllocatedResult,
    ClaimDeviceRequest,
    ClaimSpec,
    ResourceClaim,
)
from ledger.kube.resource_claims.request_bounds import device_bound, requested_amounts
from ledger.kube.resource_claims.selector_conditions import DeviceCondition, both, condition_of
from ledger.kube.resource_claims.slice_pools import SupplyDevice

UNSHARED: Final = DeviceCondition(shared=False)
"""The condition of devices that one claim has alone: they have no consumed capacity."""


CORES_MAX: Final = 2**20
"""Most cores of one device of a vendor whose cards have no known number of cores."""


class Allocated(msgspec.Struct, frozen=True):
    """The amounts that an allocated claim consumes, by resource, and its devices."""

    amounts: Amounts
    devices: Devices


def allocated(claim: ResourceClaim, world: ClaimWorld) -> Allocated | None:
    """Return the allocation of a claim, None if it is not allocated.

    Devices of drivers that have no GPUs are left out. A device counts with its consumed capacity,
    else as a whole card by its slice. If neither is known, it counts as much as its request could
    consume at most.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return None
    forms = dict(_forms(claim.spec))
    amounts: Amounts = {}
    devices: list[Device] = []
    for result in islice(allocation.devices.results or (), RESULTS_MAX):
        form = forms.get(result.request)
        driver = _driver_of(result, form, world)
        if driver is None:
            continue
        known = world.supply.find(result.driver, result.pool, result.device)
        used = _used(result, form, known, driver, world)
        devices.append(_device(claim.metadata.name, result, known, used, world))
        vendor = world.vendor(driver)
        if vendor is not None and not result.admin_access:
            types = types_of(known.shape.product, world.rules) if known is not None else ()
            amounts = plus(amounts, resources_of_device(used, 1, vendor, world.rules, types))
    return Allocated(without_zeros(amounts), tuple(devices))


def _forms(spec: ClaimSpec) -> Iterator[tuple[str, ClaimDeviceRequest]]:
    """Yield the alternatives of all requests, by the names that results use."""
    for request in spec.devices.requests or ():
        if request.exactly is not None:
            yield request.name, request.exactly
        for form in request.first_available or ():
            yield f"{request.name}/{form.name}", form


def _driver_of(
    result: AllocatedResult, form: ClaimDeviceRequest | None, world: ClaimWorld
) -> DriverMapping | None:
    """Return the mapping of a device's driver, by its name or by the class of its request."""
    known = world.mapping.by_driver.get(result.driver)
    if known is not None or result.driver in world.mapping.other_drivers or form is None:
        return known
    mapped = world.mapped(form.device_class_name)
    if not isinstance(mapped, MappedClass):
        return None
    return next((each for each in mapped.drivers if each.driver == result.driver), None)


def _used(
    result: AllocatedResult,
    form: ClaimDeviceRequest | None,
    known: SupplyDevice | None,
    driver: DriverMapping,
    world: ClaimWorld,
) -> DeviceAmounts:
    """Return the amounts of an allocated device."""
    vendor = world.vendor(driver)
    if vendor is None:
        return DeviceAmounts(0, 0)
    consumed = _consumed(result)
    if known is None:
        return _unseen(consumed, form, driver, world)
    most = world.supply.card_memory_max
    return amounts_of_device(known.shape, consumed, vendor, world.rules, memory_max=most)


def _consumed(result: AllocatedResult) -> dict[str, int] | None:
    """Return the consumed amounts in billionths, None for a device that is not shared."""
    if not result.consumed_capacity:
        return None
    consumed: dict[str, int] = {}
    for name, quantity in result.consumed_capacity.items():
        try:
            consumed[plain(name, result.driver)] = max(0, parse_nano(quantity))
        except QuantityError:
            continue
    return consumed


def _unseen(
    consumed: dict[str, int] | None,
    form: ClaimDeviceRequest | None,
    driver: DriverMapping,
    world: ClaimWorld,
) -> DeviceAmounts:
    """Return the amounts of a device without a slice: the consumed ones, else the largest card."""
    if consumed is not None:
        return _at_most_a_card(requested_amounts(driver, consumed, world), driver, world)
    condition = UNSHARED
    mapped = world.mapped(form.device_class_name) if form is not None else None
    if form is not None and isinstance(mapped, MappedClass):
        condition = both(both(mapped.condition, condition_of(form.selectors)), condition)
    each = device_bound(driver, condition, {}, world)
    return DeviceAmounts(None if each.unknown else each.memory, each.cores)


def _at_most_a_card(
    amounts: DeviceAmounts, driver: DriverMapping, world: ClaimWorld
) -> DeviceAmounts:
    """Return the amounts, none above the largest card: nothing else bounds a written status."""
    memory, whole = amounts.memory, world.rules.by_name[driver.vendor].whole_cores
    return DeviceAmounts(
        None if memory is None else min(memory, world.supply.card_memory_max),
        min(amounts.cores, whole or CORES_MAX),
    )


def _device(
    claim: str,
    result: AllocatedResult,
    known: SupplyDevice | None,
    used: DeviceAmounts,
    world: ClaimWorld,
) -> Device:
    """Return the record of an allocated device."""
    node = known.node if known is not None else ""
    return Device(
        claim=claim,
        request=result.request,
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        share=result.share_id,
        node=f"{world.cluster}/{node}" if node else "",
        card=known.uuid if known is not None else "",
        memory=used.memory or 0,
        cores=used.cores,
        admin=bool(result.admin_access),
    )
