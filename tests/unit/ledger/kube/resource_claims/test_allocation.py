"""Allocation: the amounts of allocated devices, by consumption, by slice, or by bound."""

from typing import Any

import pytest
from support.claims.device_supplies import (
    CARD,
    CORES,
    DRIVER,
    GIB,
    H100,
    MEMORY,
    allocated_claim,
    asking,
    claim_spec,
    device,
    device_class,
    resource_slice,
    shared_card,
    whole_card,
    world,
)

from ledger.core.model.devices import Device
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import parse_types
from ledger.kube.resource_claims.allocation import Allocated, allocated
from ledger.kube.resource_claims.claim_world import ClaimWorld
from ledger.kube.resource_claims.device_classes import class_mapping
from ledger.kube.resource_claims.dra_objects import ResourceClaim, ResourceSlice

N1 = resource_slice(shared_card("g0"), whole_card("w0"))
SPEC = claim_spec(asking("gpu"))
SHARE = {"device": "g0", "shareID": "s", "consumedCapacity": {"memory": "8Gi", "cores": "30"}}


def settled(
    *results: dict[str, Any], within: ClaimWorld | None = None, spec: Any = SPEC
) -> Allocated:
    claim = allocated_claim(spec, *results)
    found_allocation = allocated(claim, world(N1) if within is None else within)
    assert found_allocation is not None
    return found_allocation


def test_a_claim_without_allocation_has_none() -> None:
    assert allocated(ResourceClaim(spec=SPEC), world(N1)) is None


def test_consumed_capacity_of_a_shared_device_counts() -> None:
    result = settled(SHARE)
    assert result.amounts == {CARD: 1, MEMORY: 8 * GIB, CORES: 30}
    assert result.devices == (
        Device("a", "r0", DRIVER, "n1", "g0", "s", "c/n1", "GPU-g0", 8 * GIB, 30),
    )


def test_a_device_without_sharing_counts_whole() -> None:
    result = settled({"device": "w0"})
    assert result.amounts == {CARD: 1, MEMORY: 48 * GIB, CORES: 100}
    assert result.devices[0].card == "GPU-w0"


def test_two_shares_of_one_device_are_added() -> None:
    result = settled(SHARE, SHARE | {"shareID": "t"}, {"device": "w0"})
    assert result.amounts == {CARD: 3, MEMORY: 64 * GIB, CORES: 160}
    assert [each.share for each in result.devices] == ["s", "t", ""]


def test_names_with_the_domain_of_the_driver_are_the_same() -> None:
    consumed = {f"{DRIVER}/memory": "8Gi", f"{DRIVER}/cores": "30"}
    assert settled(SHARE | {"consumedCapacity": consumed}).amounts == settled(SHARE).amounts


def test_administration_is_recorded_and_not_charged() -> None:
    result = settled({"device": "w0", "adminAccess": True})
    assert result.amounts == {}
    assert result.devices[0].admin


def test_a_device_is_found_in_a_stale_generation() -> None:
    new = resource_slice(name="new", generation=2, slices=2)
    assert settled({"device": "w0"}, within=world(N1, new)).amounts[MEMORY] == 48 * GIB


def test_a_device_without_a_slice_counts_as_its_consumption_or_the_bound() -> None:
    gone = settled(SHARE, within=world())
    assert gone.amounts == {CARD: 1, MEMORY: 8 * GIB, CORES: 30}
    assert (gone.devices[0].node, gone.devices[0].card) == ("", "")
    open_card = device("y", {"memory": {"value": "90Gi"}}, shared=True)
    other = world(resource_slice(whole_card("x", "70Gi"), open_card, node="n2"))
    assert settled({"device": "w0"}, within=other).amounts[MEMORY] == 70 * GIB
    worst = world(rules=DemandRules(worst_card_memory=9_000))
    assert settled({"device": "w0"}, within=worst).amounts == {CARD: 1, MEMORY: 9_000, CORES: 100}
    assert settled({"device": "w0"}, within=world()).amounts == {CARD: 1, CORES: 100}


def test_types_of_an_allocated_device_are_charged() -> None:
    typed = world(N1, rules=DemandRules(types=parse_types(["h100", "l40s"])))
    assert settled(SHARE, {"device": "w0"}, within=typed).amounts == {
        CARD: 2,
        MEMORY: 56 * GIB,
        CORES: 130,
        "h100.nvidia.com/gpu": 1,
        "h100.nvidia.com/gpumem": 8 * GIB,
        "h100.nvidia.com/gpucores": 30,
        "l40s.nvidia.com/gpu": 1,
        "l40s.nvidia.com/gpumem": 48 * GIB,
        "l40s.nvidia.com/gpucores": 100,
    }


@pytest.mark.parametrize(
    ("consumed", "memory", "cores"),
    [
        ({"memory": "-8Gi", "cores": "-1"}, 0, 0),
        ({"memory": "8Ei", "cores": "8Ei"}, 294_912, 100),
        ({"memory": "what", "cores": "30"}, 80 * GIB, 30),
        ({"memory": "1"}, 1, 100),
        ({"memory": "0", "cores": "0"}, 0, 0),
    ],
)
def test_absurd_consumption_is_bounded(consumed: dict[str, str], memory: int, cores: int) -> None:
    result = settled(SHARE | {"consumedCapacity": consumed})
    assert result.amounts.get(MEMORY, 0) == memory
    assert result.amounts.get(CORES, 0) == cores


def test_absurd_consumption_of_a_device_without_a_slice_is_bounded() -> None:
    gone = settled(SHARE | {"consumedCapacity": {"memory": "8Ei", "cores": "8Ei"}}, within=world())
    assert gone.amounts == {CARD: 1, MEMORY: 294_912, CORES: 100}


def test_devices_of_other_drivers_are_left_out() -> None:
    result = settled({"device": "eth0", "driver": "dra.net"}, {"device": "x", "driver": "acme"})
    assert result == Allocated({}, ())


def test_a_driver_is_mapped_by_the_class_of_its_request() -> None:
    built_in = class_mapping()
    shared = device_class("k", f"device.driver == '{DRIVER}'", extended=CARD)
    made = world(N1, classes=[shared], classes_mapping=built_in)
    spec = claim_spec([asking("k")])
    result = settled({"device": "w0", "request": "r0/f0"}, within=made, spec=spec)
    assert result.amounts == {CARD: 1, MEMORY: 48 * GIB, CORES: 100}
    unknown = settled({"device": "w0", "request": "r9"}, within=made, spec=spec)
    assert unknown == Allocated({}, ())


def test_the_card_of_a_part_is_its_parent() -> None:
    part = device(
        "m", {"memory": {"value": "10Gi"}}, uuid="MIG-1", parentUUID="GPU-1", productName=H100
    )
    made = world(resource_slice(part, driver="gpu.nvidia.com"))
    result = settled({"device": "m", "driver": "gpu.nvidia.com"}, within=made)
    assert result.devices[0].card == "GPU-1"
    assert result.amounts[MEMORY] == 10 * GIB


def test_results_beyond_those_of_an_allocation_are_cut() -> None:
    assert settled(*([SHARE] * 40)).amounts[CARD] == 32


def hami(memory: str = "81559Mi") -> ResourceSlice:
    policy = {"min": "1Mi", "max": memory, "step": "1Mi"}
    capacity = {
        "cores": {
            "value": "100",
            "requestPolicy": {
                "default": "100",
                "validRange": {"min": "0", "max": "100", "step": "1"},
            },
        },
        "memory": {
            "value": memory,
            "requestPolicy": {"default": memory, "validRange": policy},
        },
    }
    card = device("hami-gpu-0", capacity, shared=True, uuid="GPU-1", productName=H100)
    return resource_slice(card, driver="hami-core-gpu.project-hami.io")


def test_shares_of_hamis_driver_are_charged() -> None:
    driver = "hami-core-gpu.project-hami.io"
    classes = [device_class(driver, f'device.driver == "{driver}"')]
    made = world(hami(), classes=classes)
    consumed = {"memory": "4Gi", "cores": "25"}
    result = settled(
        {"device": "hami-gpu-0", "driver": driver, "consumedCapacity": consumed},
        within=made,
        spec=claim_spec(asking(driver, memory="4Gi", cores="25")),
    )
    assert result.amounts == {CARD: 1, MEMORY: 4 * GIB, CORES: 25}
