"""Request bounds: the most that each device of a request could consume, over all candidates.

Candidates are the devices of complete pools that the selectors may accept and that can satisfy the
requested capacities.
"""

from collections.abc import Mapping

import msgspec

from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.quoting import shown
from ledger.kube.requests.quantities import MEBIBYTE, QuantityError, parse_nano
from ledger.kube.resource_claims.claim_world import ClaimWorld
from ledger.kube.resource_claims.consumed_capacity import UNIT, amounts_consumed, up
from ledger.kube.resource_claims.device_amounts import (
    DeviceAmounts,
    amounts_of_device,
    size_of_card,
    types_of,
)
from ledger.kube.resource_claims.device_classes import DriverMapping
from ledger.kube.resource_claims.device_shapes import DeviceShape, plain
from ledger.kube.resource_claims.dra_objects import ClaimDeviceRequest
from ledger.kube.resource_claims.selector_conditions import DeviceCondition

Asked = Mapping[str, int]
"""Requested capacities in billionths, by name without the driver's domain."""


class DeviceBound(msgspec.Struct, frozen=True):
    """The most that one device of a driver could consume.

    `memory` is in MiB, the largest known one. With `unknown`, a candidate is a card of unknown
    size. `types` has the most of each known type, over the candidates of this type. `candidates` is
    empty if no device can satisfy the request; the amounts are then those asked for, or those of a
    whole card.
    """

    memory: int
    cores: int
    unknown: bool
    types: Mapping[str, DeviceAmounts]
    candidates: tuple[DeviceShape, ...]


def device_bound(
    driver: DriverMapping, condition: DeviceCondition, asked: Asked, world: ClaimWorld
) -> DeviceBound:
    """Return the bound of one device; the vendor of the driver is one of the world's rules."""
    supply, rules = world.supply, world.rules
    vendor = rules.by_name[driver.vendor]
    largest = max(supply.card_memory_max, _asked_memory(asked, driver) or 0)
    candidates = []
    memory = cores = 0
    unknown = False
    types: dict[str, DeviceAmounts] = {}
    for shape in supply.shapes(driver.driver):
        if not shape.meets(condition):
            continue
        consumed = amounts_consumed(shape.capacities, asked)
        if consumed is None:
            continue
        used = consumed if shape.shared else None
        amounts = amounts_of_device(shape, used, vendor, rules, memory_max=largest)
        memory, cores = max(memory, amounts.memory or 0), max(cores, amounts.cores)
        unknown = unknown or amounts.memory is None
        for name in types_of(shape.product, rules):
            types[name] = _larger(types.get(name), amounts)
        candidates.append(shape)
    if not candidates:
        amounts = requested_amounts(driver, asked, world)
        return DeviceBound(amounts.memory or 0, amounts.cores, amounts.memory is None, {}, ())
    return DeviceBound(memory, cores, unknown, types, tuple(candidates))


def _larger(most: DeviceAmounts | None, other: DeviceAmounts) -> DeviceAmounts:
    if most is None:
        return other
    known = [each.memory for each in (most, other) if each.memory is not None]
    return DeviceAmounts(max(known, default=None), max(most.cores, other.cores))


def requested_amounts(driver: DriverMapping, asked: Asked, world: ClaimWorld) -> DeviceAmounts:
    """Return the requested amounts, with the defaults of containers for others.

    That is all memory of a card, and all its cores if no memory is requested either.
    """
    vendor = world.rules.by_name[driver.vendor]
    memory = _asked_memory(asked, driver)
    cores = _asked(asked, driver.cores, driver.driver)
    default = vendor.whole_cores if memory is None else vendor.default_cores
    return DeviceAmounts(
        size_of_card(vendor, world.rules, ()) if memory is None else memory,
        default if cores is None else up(cores, UNIT),
    )


def _asked_memory(asked: Asked, driver: DriverMapping) -> int | None:
    memory = _asked(asked, driver.memory, driver.driver)
    return None if memory is None else up(memory, UNIT * MEBIBYTE)


def _asked(asked: Asked, names: tuple[str, ...], driver: str) -> int | None:
    return next((asked[name] for name in (plain(n, driver) for n in names) if name in asked), None)


def capacities_asked(request: ClaimDeviceRequest, field: str) -> dict[str, int] | Denial:
    """Return the requested capacities in billionths, or the denial of an invalid amount."""
    asked: dict[str, int] = {}
    given = request.capacity.requests if request.capacity is not None else None
    for name, quantity in (given or {}).items():
        where = f"{field}.capacity.requests[{shown(name)}]"
        try:
            amount = parse_nano(quantity)
        except QuantityError as error:
            return _invalid(where, name, quantity, str(error))
        if amount < 0:
            return _invalid(where, name, quantity, "is negative")
        asked[name] = amount
    return asked


def asked_of(asked: Asked, driver: DriverMapping, field: str) -> dict[str, int] | Denial:
    """Return the requests by names without the driver's domain, or the denial of a double one."""
    names: dict[str, int] = {}
    for name, amount in asked.items():
        short = plain(name, driver.driver)
        if short in names:
            return Denial(
                Reason.INVALID_QUANTITY,
                f"the capacity {shown(short)} is requested twice: with and without the domain"
                f" {driver.driver}",
                transient=False,
                remedy="Request each capacity once; a name without a domain means the driver's",
                field=f"{field}.capacity.requests[{shown(name)}]",
                value=shown(name),
            )
        names[short] = amount
    return names


def _invalid(field: str, name: str, quantity: str | int, why: str) -> Denial:
    return Denial(
        Reason.INVALID_QUANTITY,
        f"the requested capacity {shown(name)} is {shown(quantity)}, which {why}",
        transient=False,
        remedy="Write an amount as Kubernetes does, for example 16Gi of memory",
        field=field,
        value=shown(quantity),
    )
