"""Claim demand: the most that a resource claim could consume, as amounts of the ledger.

For each request that is the number of its devices times the most that one device could consume. Of
alternatives, the component-wise largest counts, because one of them is chosen.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts, largest, most_of, plus, without_zeros
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.quoting import shown
from ledger.kube.requests.demand import Demand
from ledger.kube.resource_claims.claim_world import ClaimBound, ClaimWorld
from ledger.kube.resource_claims.device_amounts import (
    DeviceAmounts,
    resources_of_device,
    resources_of_type,
)
from ledger.kube.resource_claims.device_classes import (
    DriverMapping,
    MappedClass,
    Unmapped,
)
from ledger.kube.resource_claims.dra_objects import (
    RESULTS_MAX,
    ClaimDeviceRequest,
    ClaimRequest,
    ClaimSpec,
)
from ledger.kube.resource_claims.request_bounds import (
    Asked,
    DeviceBound,
    asked_of,
    capacities_asked,
    device_bound,
)
from ledger.kube.resource_claims.selector_conditions import (
    READ_MAX,
    DeviceCondition,
    both,
    characters_of,
    condition_of,
)

__all__ = ["ClaimBound", "ClaimWorld", "bound_of"]

REMEMBERED_MAX: Final = 4_096
"""Bounds that one world keeps; a namespace makes many claims of one spec."""

NAMED_MAX: Final = 8
"""Warnings, and unmapped classes, that a bound names.

A claim may have 256 alternatives with names of 253 characters, and many bounds are kept.
"""

ALL: Final = "All"
"""The allocation mode that takes all devices of a node."""


def bound_of(spec: ClaimSpec, world: ClaimWorld) -> ClaimBound | Denial:
    """Return the bound of a claim, or the denial of a claim that can never be allocated.

    The denial's field is relative to the spec: `devices.requests[0].exactly.count`.
    """
    digest = blake2b(msgspec.msgpack.encode(spec), digest_size=16).digest()
    key = digest, world.supply.shapes_version
    bound = world.remembered.get(key)
    if bound is None:
        if len(world.remembered) >= REMEMBERED_MAX:
            world.remembered.clear()
        bound = world.remembered[key] = _bound(spec, world)
    return bound


def _bound(spec: ClaimSpec, world: ClaimWorld) -> ClaimBound | Denial:
    requests = spec.devices.requests or ()
    least = [min(map(_least, forms), default=1) for forms in map(_forms, requests)]
    if sum(least) > RESULTS_MAX:
        return _too_many(requests, least)
    reading = _Reading(world)
    amounts: Amounts = {}
    for number, request in enumerate(requests):
        spare = RESULTS_MAX - sum(least) + least[number]
        amounts = plus(amounts, reading.request(request, f"devices.requests[{number}]", spare))
        if reading.denial is not None:
            return reading.denial
    for resource, amount in amounts.items():
        if amount > most_of(resource):
            return _beyond(resource, amount)
    return reading.bound(without_zeros(amounts))


def _forms(request: ClaimRequest) -> Sequence[ClaimDeviceRequest]:
    """Return the alternatives of a request, of which one is allocated."""
    return (request.exactly,) if request.exactly is not None else request.first_available or ()


def _least(form: ClaimDeviceRequest) -> int:
    """Return the least number of devices: with All, one device suffices."""
    return 1 if form.allocation_mode == ALL else max(form.count, 1)


class _Reading:
    """One pass over the requests of a claim, and the first denial."""

    def __init__(self, world: ClaimWorld) -> None:
        self.world = world
        self.denial: Denial | None = None
        self.unknown = self.unknown_field = ""
        self.assumed: set[str] = set()
        self.unresolved = False
        self.warnings: dict[str, None] = {}
        self.unmapped: dict[Unmapped, None] = {}
        self._bounds: dict[object, DeviceBound] = {}
        self._unread = READ_MAX  # characters of selectors that may still be read

    def request(self, request: ClaimRequest, field: str, spare: int) -> Amounts:
        """Return the amounts of a request, of which at most `spare` devices can be allocated."""
        if request.exactly is not None:
            return self._form(request.exactly, f"{field}.exactly", request.name, spare)
        amounts: Amounts = {}
        for number, form in enumerate(request.first_available or ()):
            if _least(form) <= spare and self.denial is None:
                where = f"{field}.firstAvailable[{number}]"
                name = f"{request.name}/{form.name}"
                amounts = largest(amounts, self._form(form, where, name, spare))
        return amounts

    def bound(self, amounts: Amounts) -> ClaimBound:
        """Return the bound with the amounts of all requests."""
        assumed = tuple(name for name in amounts if name in self.assumed)
        return ClaimBound(
            Demand(amounts, self.unknown_field, self.unknown, assumed, unresolved=self.unresolved),
            tuple(islice(self.warnings, NAMED_MAX)),
            tuple(islice(self.unmapped, NAMED_MAX)),
        )

    def _form(self, form: ClaimDeviceRequest, field: str, name: str, spare: int) -> Amounts:
        asked = capacities_asked(form, field)
        if isinstance(asked, Denial):
            self.denial = asked
            return {}
        if form.admin_access:
            return {}  # its allocation is recorded, and not charged
        mapped = self.world.mapped(form.device_class_name)
        if isinstance(mapped, Unmapped):
            self.unmapped[mapped] = None
            self.unresolved = True
        if not isinstance(mapped, MappedClass):
            return {}
        return self._mapped(form, mapped, asked, field, name, spare)

    def _mapped(
        self,
        form: ClaimDeviceRequest,
        mapped: MappedClass,
        asked: Asked,
        field: str,
        name: str,
        spare: int,
    ) -> Amounts:
        condition = both(mapped.condition, condition_of(form.selectors, self._unread))
        self._unread -= characters_of(form.selectors)
        bounds = self._of_drivers(mapped, condition, asked, field)
        fitting = [pair for pair in bounds if pair[1].candidates]
        if bounds and not fitting:
            self.unresolved = True
            self._warn(
                f"no device of the class {shown(mapped.name)} can satisfy the request"
                f" {shown(name)} now"
            )
        count = max(form.count, 1)
        if form.allocation_mode == ALL:
            supply = self.world.supply
            count = sum(supply.most(driver.driver, each.candidates) for driver, each in fitting)
            count = min(count or spare, spare)
        amounts: Amounts = {}
        for driver, each in fitting or bounds:
            amounts = largest(amounts, self._amounts(driver, each, count, field, form))
        if not condition.exact and sum(len(each.candidates) for _, each in fitting) > 1:
            self._warn(_over_all(name, count, fitting))
        return amounts

    def _of_drivers(
        self, mapped: MappedClass, condition: DeviceCondition, asked: Asked, field: str
    ) -> list[tuple[DriverMapping, DeviceBound]]:
        """Return the bound of one device of each driver whose vendor is charged."""
        bounds = []
        for driver in mapped.drivers:
            if condition.drivers is not None and driver.driver not in condition.drivers:
                continue
            if self.world.vendor(driver) is None:
                self._warn(
                    f"the device class {shown(mapped.name)} selects devices of the vendor"
                    f" {driver.vendor}, which are not charged: the setting vendors does not name it"
                )
                continue
            own = asked_of(asked, driver, field)
            if isinstance(own, Denial):
                self.denial = own
                return []
            key = driver.driver, condition, frozenset(own.items())
            each = self._bounds.get(key)
            if each is None:
                each = self._bounds[key] = device_bound(driver, condition, own, self.world)
            bounds.append((driver, each))
        return bounds

    def _amounts(
        self,
        driver: DriverMapping,
        each: DeviceBound,
        count: int,
        field: str,
        form: ClaimDeviceRequest,
    ) -> Amounts:
        """Return the amounts of a request for devices of one driver."""
        rules = self.world.rules
        vendor = rules.by_name[driver.vendor]
        if each.unknown and vendor.memory:
            self._miss(field, vendor.memory)
        device = DeviceAmounts(each.memory, each.cores)
        amounts = resources_of_device(device, count, vendor, rules, ())
        for card_type, most in each.types.items():
            amounts |= resources_of_type(most, count, vendor, rules, card_type)
        certain = set() if form.allocation_mode == ALL else {vendor.count}
        self.assumed |= amounts.keys() - certain
        return amounts

    def _miss(self, field: str, resource: str) -> None:
        """Record an unknown amount; a second unknown resource is a denial."""
        if not self.unknown:
            self.unknown_field, self.unknown = field, resource
        elif resource != self.unknown and self.denial is None:
            self.denial = Denial(
                Reason.CARD_MEMORY_UNKNOWN,
                f"the claim requests devices of unknown size, and neither how much {self.unknown}"
                f" nor how much {resource} they have is known",
                transient=False,
                remedy="Request an amount of memory from each, or set worst_card_memory to the MiB"
                " to assume",
                field=field,
            )

    def _warn(self, warning: str) -> None:
        self.warnings[warning] = None


def _over_all(name: str, count: int, fitting: Iterable[tuple[DriverMapping, DeviceBound]]) -> str:
    """Return the warning that a request counts over more devices than it may select."""
    kinds = sum(len(each.candidates) for _, each in fitting)
    drivers = " and ".join(driver.driver for driver, _ in fitting)
    devices = "device of the largest" if count == 1 else "devices, each of the largest"
    return (
        f"not all selectors are evaluated, so the request {shown(name)} counts as {count} {devices}"
        f" of {kinds} kinds of {drivers}"
    )


def _too_many(requests: Sequence[ClaimRequest], least: Sequence[int]) -> Denial:
    field = "devices.requests"
    number = max(range(len(least)), key=least.__getitem__)
    if least[number] > RESULTS_MAX:
        form = "exactly.count" if requests[number].exactly is not None else "firstAvailable"
        field = f"devices.requests[{number}].{form}"
    total = shown(sum(least))
    return Denial(
        Reason.TOO_MANY_DEVICES,
        f"the claim asks for {total} devices, and an allocation holds at most {RESULTS_MAX}",
        transient=False,
        remedy=f"Ask for at most {RESULTS_MAX} devices in one claim, or use several claims",
        field=field,
        value=total,
    )


def _beyond(resource: str, amount: int) -> Denial:
    return Denial(
        Reason.INVALID_QUANTITY,
        f"{resource} of the claim comes to {shown(amount)}, which is beyond {most_of(resource)}",
        transient=False,
        remedy="Ask for less: no cluster has that much",
        field="devices.requests",
        value=shown(amount),
    )
