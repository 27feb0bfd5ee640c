"""Device shapes: the properties by which devices differ for a claim, as equal values.

Thousands of equal cards have one shape, so the bound of a claim depends on the number of shapes,
not on that of devices.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from ledger.kube.requests.quantities import QuantityError
from ledger.kube.resource_claims.consumed_capacity import CapacityRule, capacity_rule
from ledger.kube.resource_claims.device_classes import DriverMapping
from ledger.kube.resource_claims.dra_objects import SliceDevice
from ledger.kube.resource_claims.selector_conditions import DeviceCondition

Value = TypeVar("Value")
Default = TypeVar("Default")

KINDS: Final = ("type", "profile")
"""Attributes that divide the devices of a driver, besides the product: card, part of a card, …"""

TEXT_MAX: Final = 128
"""Longest text that is kept of an attribute; longer texts are cut."""


class DeviceShape(msgspec.Struct, frozen=True, cache_hash=True):
    """The common properties of equal devices of one driver.

    `product` is the name of the type of card, empty if unknown. `attributes` are the product and
    `KINDS`, by name without the driver's domain. `shared` is true if a device allows several
    allocations. `capacities` are sorted by name, without the driver's domain. `memory` and `cores`
    are those of them that are charged.
    """

    driver: str
    product: str = ""
    shared: bool = False
    attributes: tuple[tuple[str, str], ...] = ()
    capacities: tuple[CapacityRule, ...] = ()
    memory: CapacityRule | None = None
    cores: CapacityRule | None = None

    def meets(self, condition: DeviceCondition) -> bool:
        """Return whether a device of this shape may meet a condition of selectors."""
        if condition.drivers is not None and self.driver not in condition.drivers:
            return False
        if condition.shared is not None and self.shared != condition.shared:
            return False
        return not condition.attributes or all(
            self._may_have(plain(f"{domain}/{name}", self.driver), value)
            for domain, name, value in condition.attributes
        )

    def _may_have(self, name: str, value: str) -> bool:
        texts = dict(self.attributes)
        if name in texts:
            return texts[name] == value[:TEXT_MAX]
        # Of the kept attributes it is certain that the device lacks them.
        return name not in KINDS


def plain(name: str, driver: str) -> str:
    """Return the name of an attribute or capacity without the driver's domain."""
    return name.removeprefix(f"{driver}/")


def shape_of(device: SliceDevice, mapping: DriverMapping) -> tuple[DeviceShape, str]:
    """Return the shape of a device, and the uuid of its card, empty if it names none.

    A capacity with an invalid quantity is left out.
    """
    driver = mapping.driver
    attributes = _texts(device, driver)
    product = _first(attributes, mapping.product, driver, "")
    names = (*KINDS, *(plain(name, driver) for name in mapping.product))
    kept = {name: attributes[name] for name in names if name in attributes}
    rules: dict[str, CapacityRule] = {}
    for given, capacity in (device.capacity or {}).items():
        name = plain(given, driver)
        try:
            rules[name] = capacity_rule(name, capacity)
        except QuantityError:
            continue
    shape = DeviceShape(
        driver,
        product,
        bool(device.allow_multiple_allocations),
        tuple(sorted(kept.items())),
        tuple(rules[name] for name in sorted(rules)),
        _first(rules, mapping.memory, driver, None),
        _first(rules, mapping.cores, driver, None),
    )
    return shape, _first(attributes, mapping.uuid, driver, "")


def _texts(device: SliceDevice, driver: str) -> dict[str, str]:
    return {
        plain(name, driver): value.string[:TEXT_MAX]
        for name, value in (device.attributes or {}).items()
        if value.string is not None
    }


def _first(
    values: Mapping[str, Value], names: Iterable[str], driver: str, default: Default
) -> Value | Default:
    """Return the value of the first name that a device has."""
    for name in names:
        if plain(name, driver) in values:
            return values[plain(name, driver)]
    return default
