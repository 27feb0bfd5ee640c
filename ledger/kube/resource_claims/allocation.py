"""Allocation: the amounts and devices that kube-scheduler gave to a resource claim."""

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.devices import Devices
from ledger.kube.resource_claims.claim_demand import ClaimWorld
from ledger.kube.resource_claims.dra_objects import ResourceClaim


class Allocated(msgspec.Struct, frozen=True):
    """The amounts that an allocated claim consumes, by resource, and its devices."""

    amounts: Amounts
    devices: Devices


def allocated(claim: ResourceClaim, world: ClaimWorld) -> Allocated | None:
    """Return the allocation of a claim, None if it is not allocated."""
    return None
