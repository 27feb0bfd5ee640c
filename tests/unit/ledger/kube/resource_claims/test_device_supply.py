"""Device supply: the devices that kube-scheduler may allocate, in any order of slices."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.claims.device_supplies import (
    DRIVER,
    counted_devices,
    mapping,
    resource_slice,
    shared_card,
    whole_card,
)

from ledger.kube.resource_claims import device_supply, shape_counts
from ledger.kube.resource_claims.device_supply import SLICE_DEVICES_MAX, DeviceSupply
from ledger.kube.resource_claims.dra_objects import RESULTS_MAX, ResourceSlice

A, B = shared_card("a"), whole_card("b")


def supply(*slices: ResourceSlice) -> DeviceSupply:
    made = DeviceSupply(mapping())
    for each in slices:
        made.take_slice(each)
    return made


def names(made: DeviceSupply) -> list[str]:
    return [device.name for device in counted_devices(made)]


def test_devices_of_complete_pools_are_supplied() -> None:
    made = supply(resource_slice(B, A, node="n1"), resource_slice(A, node="n0"))
    assert [(each.pool, each.name, each.node, each.uuid) for each in counted_devices(made)] == [
        ("n0", "a", "n0", "GPU-a"),
        ("n1", "a", "n1", "GPU-a"),
        ("n1", "b", "n1", "GPU-b"),
    ]
    assert len(made.shapes(DRIVER)) == 2


def test_an_incomplete_pool_supplies_nothing_until_it_is_complete() -> None:
    made = supply(resource_slice(A, name="s1", slices=2))
    assert not names(made)
    assert not made.shapes(DRIVER)
    made.take_slice(resource_slice(B, name="s2", slices=2))
    assert names(made) == ["a", "b"]
    made.drop_slice("s1")
    assert not names(made)
    assert not made.shapes(DRIVER)


def test_only_the_highest_generation_is_supplied() -> None:
    made = supply(
        resource_slice(A, name="new", generation=2), resource_slice(B, name="old", generation=1)
    )
    assert names(made) == ["a"]
    made.take_slice(resource_slice(A, name="newer", generation=3, slices=2))
    assert not names(made)
    made.drop_slice("newer")
    assert names(made) == ["a"]
    made.drop_slice("new")
    assert names(made) == ["b"]


def test_a_pool_with_one_device_twice_is_invalid() -> None:
    made = supply(resource_slice(A, name="s1", slices=2), resource_slice(A, B, name="s2", slices=2))
    assert not names(made)
    made.take_slice(resource_slice(B, name="s2", slices=2))
    assert names(made) == ["a", "b"]


def test_an_allocated_device_is_found_in_any_generation() -> None:
    made = supply(
        resource_slice(A, B, name="old", generation=1),
        resource_slice(shared_card("a", "40Gi"), name="new", generation=2, slices=2),
    )
    found_device = made.find(DRIVER, "n1", "a")
    assert found_device is not None
    assert found_device.shape.capacities[1].value == 40 * 2**30 * 10**9
    assert made.find(DRIVER, "n1", "b") is not None
    assert made.find(DRIVER, "n1", "c") is None
    assert made.find(DRIVER, "n2", "a") is None
    assert made.find("other", "n1", "a") is None


def test_cards_include_those_of_incomplete_pools() -> None:
    made = supply(resource_slice(A, slices=2), resource_slice(A, B, node="n2"))
    assert made.cards("n1") == {"GPU-a": DRIVER}
    assert made.cards("n2") == {"GPU-a": DRIVER, "GPU-b": DRIVER}
    made.drop_slice("n1")
    assert made.cards("n1") == {}
    assert made.cards("") == {}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_card_of_two_drivers_has_the_first_by_name(order: tuple[int, int]) -> None:
    drivers = sorted(("gpu.nvidia.com", DRIVER))
    each = [resource_slice(A, name=driver, driver=driver) for driver in drivers]
    made = supply(*(each[number] for number in order))
    assert made.cards("n1") == {"GPU-a": drivers[0]}
    made.drop_slice(drivers[0])
    assert made.cards("n1") == {"GPU-a": drivers[1]}


def test_a_slice_that_moves_to_another_pool_leaves_the_first() -> None:
    made = supply(resource_slice(A, name="s", node="n1"), resource_slice(A, name="s", node="n2"))
    assert [each.pool for each in counted_devices(made)] == ["n2"]
    assert made.cards("n1") == {}


def test_a_list_replaces_all_slices() -> None:
    made = supply(resource_slice(A, node="n1"), resource_slice(A, node="n2"))
    made.relist([resource_slice(B, node="n2"), resource_slice(B, node="n3")])
    assert [(each.pool, each.name) for each in counted_devices(made)] == [("n2", "b"), ("n3", "b")]
    made.relist([])
    assert not counted_devices(made)


def test_version_rises_only_when_a_bound_may_have_changed() -> None:
    made = supply(resource_slice(A))
    version = made.shapes_version
    made.take_slice(resource_slice(A))
    made.drop_slice("unknown")
    made.take_slice(resource_slice(A, node="n2"))
    assert made.shapes_version == version
    made.take_slice(resource_slice(A, B, node="n2"))
    assert made.shapes_version > version


def test_the_same_version_of_an_object_is_not_read_again() -> None:
    made = supply(resource_slice(A, version="7"))
    made.take_slice(resource_slice(B, version="7"))
    assert names(made) == ["a"]
    made.take_slice(resource_slice(B, version="8"))
    assert names(made) == ["b"]
    made.drop_slice("n1")
    made.take_slice(resource_slice(B, version="8"))
    assert names(made) == ["b"]


def test_a_slice_with_too_many_devices_is_cut() -> None:
    many = [whole_card(f"d{number}") for number in range(SLICE_DEVICES_MAX + 5)]
    assert len(counted_devices(supply(resource_slice(*many)))) == SLICE_DEVICES_MAX


def test_shapes_of_many_nodes_are_kept_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (shape_counts, device_supply):
        monkeypatch.setattr(module, "SHAPES_MAX", 3)
    odd = [whole_card(f"x{number}", f"{number + 10}Gi") for number in range(9)]
    made = supply(
        *(resource_slice(A, node=f"n{number}") for number in range(3)),
        resource_slice(*odd, node="odd"),
    )
    shapes = made.shapes(DRIVER)
    assert len(shapes) == 3
    assert counted_devices(made)[0].shape in shapes
    assert any("announce 10 kinds of devices" in doubt for doubt in made.doubts())


def test_devices_beyond_the_largest_card_are_reported() -> None:
    made = supply(resource_slice(A, B, node="n1"))
    assert made.doubts() == []
    for number in range(5):
        made.take_slice(resource_slice(whole_card("w", f"{number + 289}Gi"), node=f"bad{number}"))
    doubts = made.doubts()
    assert len(doubts) == 3
    assert all("bad" in doubt and "294912 MiB" in doubt for doubt in doubts)
    made.take_slice(resource_slice(whole_card("w", "288Gi"), node="bad0"))
    assert not any("bad0" in doubt for doubt in made.doubts())


def test_the_most_devices_of_a_node_include_those_of_all_nodes() -> None:
    many = [shared_card(f"d{number}") for number in range(5)]
    made = supply(
        resource_slice(*many, node="n1"),
        resource_slice(A, B, node="n2"),
        resource_slice(A, node="", pool="net"),
    )
    shared, whole = A.allow_multiple_allocations, B.allow_multiple_allocations
    assert (shared, whole) == (True, False)
    shapes = {shape.shared: shape for shape in made.shapes(DRIVER)}
    assert made.most(DRIVER, [shapes[True]]) == 6
    assert made.most(DRIVER, [shapes[False]]) == 1
    assert made.most(DRIVER, shapes.values()) == 6
    assert made.most("other", shapes.values()) == 0
    made.take_slice(resource_slice(*(whole_card(f"w{n}") for n in range(40)), node="n2"))
    assert made.most(DRIVER, [shapes[False]]) == RESULTS_MAX


def test_removed_slices_leave_nothing_behind() -> None:
    made = supply(*(resource_slice(A, B, node=f"n{number}") for number in range(3)))
    for number in range(50):
        made.take_slice(resource_slice(whole_card("w", f"{number}Gi"), node="n1"))
    made.relist([])
    assert set(made.take_changed_nodes()) == {"n0", "n1", "n2"}
    empty = vars(DeviceSupply(mapping())) | {"_mapping": 0, "shapes_version": 0}
    left = vars(made) | {"_mapping": 0, "shapes_version": 0}
    assert left == empty


DEVICES = (A, B, shared_card("c", "40Gi"), whole_card("d"))
SLICES = st.builds(
    lambda name, node, pool, generation, slices, devices: resource_slice(
        *devices, name=name, node=node, pool=pool, generation=generation, slices=slices
    ),
    st.sampled_from(["s1", "s2", "s3", "s4"]),
    st.sampled_from(["n1", "n2", ""]),
    st.sampled_from(["p1", "p2"]),
    st.integers(1, 2),
    st.integers(1, 2),
    st.lists(st.sampled_from(DEVICES), max_size=3),
)


def facts(made: DeviceSupply) -> Any:
    shapes = set(made.shapes(DRIVER))
    nodes = sorted((node, sorted(made.cards(node).items())) for node in ("n1", "n2", ""))
    most = [made.most(DRIVER, [device.shape]) for device in counted_devices(made)]
    return counted_devices(made), shapes, nodes, most


@given(st.lists(st.one_of(SLICES, st.sampled_from(["s1", "s2", "s3"])), max_size=14))
def test_the_supply_is_a_function_of_its_slices(steps: list[ResourceSlice | str]) -> None:
    made, left = supply(), dict[str, ResourceSlice]()
    for step in steps:
        before, shapes = made.shapes_version, set(made.shapes(DRIVER))
        if isinstance(step, str):
            made.drop_slice(step)
            left.pop(step, None)
        else:
            made.take_slice(step)
            left[step.metadata.name] = step
        assert made.shapes_version > before or set(made.shapes(DRIVER)) == shapes
    assert facts(made) == facts(supply(*left.values()))
    assert set(made.shapes(DRIVER)) == {device.shape for device in counted_devices(made)}
    for pool in ("p1", "p2"):
        slices = [each for each in left.values() if each.spec.pool.name == pool]
        highest = max((each.spec.pool.generation for each in slices), default=0)
        current = [each for each in slices if each.spec.pool.generation == highest]
        inside = [device.name for each in current for device in each.spec.devices or ()]
        counts = {each.spec.pool.resource_slice_count for each in current}
        complete = len(current) in counts and len(set(inside)) == len(inside)
        supplied = [each.name for each in counted_devices(made) if each.pool == pool]
        assert supplied == (sorted(inside) if complete else [])
