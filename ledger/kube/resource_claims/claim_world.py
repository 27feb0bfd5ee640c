"""Claim world: the objects and rules on which the amounts of resource claims depend."""

from collections.abc import Mapping
from functools import cached_property

import msgspec

from ledger.core.model.denials import Denial
from ledger.kube.requests.demand import Demand
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.resource_claims.device_classes import (
    ClassMapping,
    DriverMapping,
    MappedClass,
    NotAGpu,
    Unmapped,
)
from ledger.kube.resource_claims.device_supply import DeviceSupply
from ledger.kube.resource_claims.dra_objects import DeviceClass
from ledger.kube.vendors.vendors import Vendor


class ClaimBound(msgspec.Struct, frozen=True):
    """The most that a claim could consume.

    `unmapped` are the first classes that may select GPUs and are not mapped. Their requests are not
    counted. The demand is unresolved if there are such classes, or if no device can satisfy a
    request: stored objects then keep the admitted amounts. `warnings` are sentences for the user,
    without a full stop.
    """

    demand: Demand
    warnings: tuple[str, ...] = ()
    unmapped: tuple[Unmapped, ...] = ()


class ClaimWorld(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The inputs of the amounts of claims, besides the claims.

    `classes` must not be changed: make another world when a class or a rule changes. The supply
    may change, because it has a version. `cluster` qualifies the nodes of allocated devices.
    """

    supply: DeviceSupply
    classes: Mapping[str, DeviceClass]
    mapping: ClassMapping
    rules: DemandRules
    cluster: str = ""

    @cached_property
    def remembered(self) -> dict[tuple[bytes, int], ClaimBound | Denial]:
        """The bounds of this world, by the digests of specs and the version of the supply."""
        return {}

    @cached_property
    def _mapped(self) -> dict[str, MappedClass | Unmapped | NotAGpu]:
        return {}

    def mapped(self, name: str) -> MappedClass | Unmapped | NotAGpu:
        """Return the mapping of the class with a name."""
        device_class = self.classes.get(name)
        if device_class is None:
            # The names of classes that do not exist are of any number, so they are not kept.
            return self.mapping.of(None, name)
        mapped = self._mapped.get(name)
        if mapped is None:
            mapped = self._mapped[name] = self.mapping.of(device_class, name)
        return mapped

    def vendor(self, driver: DriverMapping) -> Vendor | None:
        """Return the vendor of a driver, None if its cards are not charged."""
        return self.rules.by_name.get(driver.vendor)
