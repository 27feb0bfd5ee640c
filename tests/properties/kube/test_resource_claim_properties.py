"""The bounds and allocations of claims, against the oracle that was written from the rules."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from hypothesis import assume, event, given
from hypothesis import strategies as st
from support.generators import resource_claims as generated
from support.oracles import device_expressions
from support.oracles import resource_claim_oracle as oracle
from support.oracles.resource_claim_oracle import DeviceSuppliers

from ledger.core.model.denials import Denial
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.resource_claims.allocation import allocated
from ledger.kube.resource_claims.claim_demand import bound_of
from ledger.kube.resource_claims.claim_world import ClaimWorld
from ledger.kube.resource_claims.device_classes import ClassMapping, class_mapping
from ledger.kube.resource_claims.device_supply import DeviceSupply
from ledger.kube.resource_claims.dra_objects import (
    ClaimSpec,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)

RECORDED: Final = Path(__file__).parents[2] / "fixtures" / "dra" / "recorded_claims.json"
MAPPING: Final = class_mapping()
RULES: Final = DemandRules(types=tuple(map(CardType, generated.TYPES)))


def world_of(supply: DeviceSuppliers, mapping: ClassMapping = MAPPING) -> ClaimWorld:
    """Return the product's view of slices and classes."""
    store = DeviceSupply(mapping)
    for each in supply.slices:
        store.take_slice(msgspec.convert(each, ResourceSlice))
    classes = {
        each["metadata"]["name"]: msgspec.convert(each, DeviceClass) for each in supply.classes
    }
    return ClaimWorld(supply=store, classes=classes, mapping=mapping, rules=RULES)


def bound(
    spec: dict[str, Any], supply: DeviceSuppliers, mapping: ClassMapping = MAPPING
) -> dict[str, int] | None:
    """Return the amounts of the product's bound, None if it denies the claim."""
    result = bound_of(msgspec.convert(spec, ClaimSpec), world_of(supply, mapping))
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
        assert all(charged.get(name, 0) >= amount for name, amount in expected.items())


@given(
    generated.specs(generated.EXACT + generated.INEXACT),
    generated.suppliers(generated.EXACT + generated.INEXACT),
)
def test_a_bound_is_never_too_small_when_an_expression_is_not_read(spec, supply) -> None:
    expected, charged = oracle.bound_of(spec, supply), bound(spec, supply)
    assert (expected is None) == (charged is None)
    if expected is not None and charged is not None:
        assert all(charged.get(name, 0) >= amount for name, amount in expected.items())


@given(generated.specs(), generated.suppliers(), st.data())
def test_an_allocation_counts_as_consumed_and_within_the_bound(spec, supply, data) -> None:
    expected_bound = oracle.bound_of(spec, supply)
    assume(expected_bound is not None and oracle.is_servable(spec, supply))
    status = data.draw(generated.allocations(spec, supply))
    claim = {"metadata": {"name": "a", "uid": "u"}, "spec": spec, "status": status}
    result = allocated(msgspec.convert(claim, ResourceClaim), world_of(supply))
    expected = oracle.allocation_of(claim, supply)
    assert result is not None
    assert expected is not None
    assert result.amounts == +expected
    assert len(result.devices) == len(status["allocation"]["devices"]["results"])
    event(f"{min(len(result.devices), 3)} devices")
    charged = bound(spec, supply)
    assert charged is not None
    assert all(charged.get(name, 0) >= amount for name, amount in expected.items())


def test_recorded_claims_follow_the_oracle(tmp_path: Path) -> None:
    file = tmp_path / "classes.yaml"
    file.write_text("drivers: [{driver: gpu.example.com, vendor: nvidia}]")
    mapping = class_mapping(file)
    recorded = json.loads(RECORDED.read_text())
    for each in (*recorded["slices"], *recorded["classes"]):
        each["metadata"].setdefault("uid", "u")
    drivers = frozenset(("gpu.example.com",))
    supply = DeviceSuppliers(
        recorded["slices"], recorded["classes"], drivers, device_expressions.accepts, ()
    )
    settled = 0
    for claim in recorded["claims"]:
        expected = oracle.bound_of(claim["spec"], supply)
        charged = bound(claim["spec"], supply, mapping)
        assert (expected is None) == (charged is None), claim["metadata"]["name"]
        if expected is not None and oracle.is_servable(claim["spec"], supply):
            assert _of_all(charged or {}) == +expected
        given_amounts = oracle.allocation_of(claim, supply)
        if given_amounts is not None:
            settled += 1
            result = allocated(msgspec.convert(claim, ResourceClaim), world_of(supply, mapping))
            assert result is not None
            assert _of_all(result.amounts) == +given_amounts
    assert settled >= 5, "most of the recorded claims are allocated"


def _of_all(amounts: Mapping[str, int]) -> dict[str, int]:
    """Leave out the amounts of types."""
    return {name: amount for name, amount in amounts.items() if name in oracle.ALL_TYPES}
