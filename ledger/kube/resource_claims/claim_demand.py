"""Claim demand: the most that a resource claim could consume, as amounts of the ledger."""

from collections.abc import Mapping

import msgspec

from ledger.core.model.denials import Denial
from ledger.kube.requests.demand import NO_DEMAND, Demand
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.resource_claims.device_classes import ClassMapping
from ledger.kube.resource_claims.device_supply import DeviceSupply
from ledger.kube.resource_claims.dra_objects import ClaimSpec, DeviceClass


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


class ClaimBound(msgspec.Struct, frozen=True):
    """The most that a claim could consume.

    `unmapped` are the classes that may select GPUs and are not mapped; their requests are not
    counted. With `admin`, a request is for administration and not counted. `basis` is a sentence
    about the devices that were considered. `warnings` are sentences for the user.
    """

    demand: Demand
    warnings: tuple[str, ...] = ()
    unmapped: tuple[str, ...] = ()
    admin: bool = False
    basis: str = ""


def bound_of(spec: ClaimSpec, world: ClaimWorld) -> ClaimBound | Denial:
    """Return the bound of a claim, or the denial of a claim that can never be allocated.

    The denial's field is relative to the spec: `devices.requests[0].exactly.count`.
    """
    return ClaimBound(NO_DEMAND)
