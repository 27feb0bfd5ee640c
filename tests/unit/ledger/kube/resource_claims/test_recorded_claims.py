"""Recorded claims: bounds and allocations of claims that Kubernetes v1.36.3 stored."""

import json
from pathlib import Path

import msgspec
import pytest
from support.claims.device_supplies import CARD, CORES, GIB, MEMORY, mapping

from ledger.core.model.amounts import covers
from ledger.core.model.denials import Denial, Reason
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.resource_claims.allocation import allocated
from ledger.kube.resource_claims.claim_demand import ClaimWorld, bound_of
from ledger.kube.resource_claims.device_supply import DeviceSupply
from ledger.kube.resource_claims.dra_objects import DeviceClass, ResourceClaim, ResourceSlice


class Recorded(msgspec.Struct):
    """The supply of the recorded cluster and its claims, allocated where they were."""

    slices: list[ResourceSlice]
    classes: list[DeviceClass]
    claims: list[ResourceClaim]


FILE = Path(__file__).parents[4] / "fixtures" / "dra" / "recorded_claims.json"
RECORDED = msgspec.convert(json.loads(FILE.read_text()), Recorded)
CLAIMS = {claim.metadata.name: claim for claim in RECORDED.claims}


def world() -> ClaimWorld:
    supply = DeviceSupply(mapping())
    supply.relist(RECORDED.slices)
    classes = {each.metadata.name: each for each in RECORDED.classes}
    return ClaimWorld(supply=supply, classes=classes, mapping=mapping(), rules=DemandRules())


def charge(cards: int, memory: int, cores: int) -> dict[str, int]:
    return {CARD: cards, CORES: cores, MEMORY: memory}


@pytest.mark.parametrize(
    ("name", "bound", "settled"),
    [
        ("all", charge(1, 48 * GIB, 100), None),
        ("first", charge(1, 200 * GIB, 10), charge(1, 4 * GIB, 10)),
        ("named", charge(2, 20 * GIB, 60), charge(2, 20 * GIB, 60)),
        ("p-tmpl-g-92l62", charge(1, 8 * GIB, 30), charge(1, 8 * GIB, 30)),
        ("web-b8b855bdd-srpwl-g-64n7g", charge(1, 8 * GIB, 30), charge(1, 8 * GIB, 30)),
        ("plain", charge(1, GIB, 10), charge(1, GIB, 10)),
        (
            "p-ext-extended-resources-97t8l",
            charge(1, 48 * GIB, 100),
            charge(1, 48 * GIB, 100),
        ),
    ],
)
def test_a_recorded_claim_is_charged_as_worked_out_by_hand(
    name: str, bound: dict[str, int], settled: dict[str, int] | None
) -> None:
    made = world()
    most = bound_of(CLAIMS[name].spec, made)
    assert not isinstance(most, Denial)
    assert most.demand.amounts == bound
    given = allocated(CLAIMS[name], made)
    assert (given.amounts if given is not None else None) == settled
    assert given is None or covers(bound, given.amounts)


def test_the_recorded_claim_of_too_many_devices_is_refused() -> None:
    denial = bound_of(CLAIMS["many"].spec, world())
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.TOO_MANY_DEVICES
    assert denial.value == str(2**63 - 1)


def test_recorded_devices_have_their_node_and_card() -> None:
    given = allocated(CLAIMS["named"], world())
    assert given is not None
    assert [(each.pool, each.device, each.card) for each in given.devices] == [
        ("n1", "gpu-0", "GPU-n1-0"),
        ("n1", "gpu-1", "GPU-n1-1"),
    ]
    assert all(each.share for each in given.devices)
