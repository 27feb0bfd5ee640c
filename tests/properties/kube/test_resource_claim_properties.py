"""The bounds and allocations of claims, against the oracle that was written from the rules."""

from typing import Any

import msgspec
from hypothesis import event, given
from support.generators import resource_claims as generated
from support.oracles import resource_claim_oracle as oracle
from support.oracles.resource_claim_oracle import DeviceSuppliers

from ledger.core.model.denials import Denial
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.resource_claims.claim_demand import bound_of
from ledger.kube.resource_claims.claim_world import ClaimWorld
from ledger.kube.resource_claims.device_classes import class_mapping
from ledger.kube.resource_claims.device_supply import DeviceSupply
from ledger.kube.resource_claims.dra_objects import ClaimSpec, DeviceClass, ResourceSlice

MAPPING = class_mapping()
RULES = DemandRules(types=tuple(map(CardType, generated.TYPES)))


def world_of(supply: DeviceSuppliers) -> ClaimWorld:
    """Return the product's view of slices and classes."""
    store = DeviceSupply(MAPPING)
    for each in supply.slices:
        store.take_slice(msgspec.convert(each, ResourceSlice))
    classes = {
        each["metadata"]["name"]: msgspec.convert(each, DeviceClass) for each in supply.classes
    }
    return ClaimWorld(supply=store, classes=classes, mapping=MAPPING, rules=RULES)


def bound(spec: dict[str, Any], supply: DeviceSuppliers) -> dict[str, int] | None:
    """Return the amounts of the product's bound, None if it denies the claim."""
    result = bound_of(msgspec.convert(spec, ClaimSpec), world_of(supply))
    return None if isinstance(result, Denial) else dict(result.demand.amounts)


@given(generated.specs(), generated.suppliers())
def test_a_bound_follows_the_rules_when_all_expressions_are_read(spec, supply) -> None:
    expected, charged = oracle.bound_of(spec, supply), bound(spec, supply)
    assert (expected is None) == (charged is None)
    if expected is None or charged is None:
        event("more devices than a claim may have")
    elif oracle.is_servable(spec, supply):
        event("each request has a device")
        assert charged == +expected
    else:
        event("a request has no device")
        assert all(charged.get(name, 0) >= amount for name, amount in _of_all(expected).items())


@given(
    generated.specs(generated.EXACT + generated.INEXACT),
    generated.suppliers(generated.EXACT + generated.INEXACT),
)
def test_a_bound_is_never_too_small_when_an_expression_is_not_read(spec, supply) -> None:
    expected, charged = oracle.bound_of(spec, supply), bound(spec, supply)
    assert (expected is None) == (charged is None)
    if expected is not None and charged is not None:
        assert all(charged.get(name, 0) >= amount for name, amount in _of_all(expected).items())


def _of_all(amounts: dict[str, int]) -> dict[str, int]:
    """Leave out the amounts of types, which are known only if all candidates agree."""
    return {name: amount for name, amount in amounts.items() if name in oracle.ALL_TYPES}
