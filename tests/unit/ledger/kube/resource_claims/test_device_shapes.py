"""Device shapes: equal devices have one shape, and a condition excludes only what it may."""

from typing import Any

import pytest
from support.claims.device_supplies import DRIVER, device, shared_card, whole_card

from ledger.kube.resource_claims.device_classes import DriverMapping
from ledger.kube.resource_claims.device_shapes import TEXT_MAX, DeviceShape, shape_of
from ledger.kube.resource_claims.selector_conditions import DeviceCondition

MAPPING = DriverMapping(driver=DRIVER, vendor="nvidia")


def shape(**strings: Any) -> DeviceShape:
    return shape_of(device("d", {}, **strings), MAPPING)[0]


def wanting(name: str, value: str, domain: str = DRIVER) -> DeviceCondition:
    return DeviceCondition(attributes=frozenset(((domain, name, value),)))


def test_equal_devices_have_one_shape_and_their_own_uuid() -> None:
    first, uuid = shape_of(shared_card("a"), MAPPING)
    second, other = shape_of(shared_card("b"), MAPPING)
    assert first == second
    assert (uuid, other) == ("GPU-a", "GPU-b")
    assert shape_of(whole_card("c"), MAPPING)[0] != first


def test_names_with_and_without_the_domain_are_the_same() -> None:
    plain = device("d", {"memory": {"value": "1"}}, productName="x", uuid="u")
    strings: dict[str, Any] = {f"{DRIVER}/productName": "x", "uuid": "u"}
    full = device("d", {f"{DRIVER}/memory": {"value": "1"}}, **strings)
    assert shape_of(plain, MAPPING) == shape_of(full, MAPPING)
    other = device("d", {"other.com/memory": {"value": "1"}})
    assert shape_of(other, MAPPING)[0].memory is None


def test_the_first_of_several_names_counts() -> None:
    mapping = DriverMapping(
        driver=DRIVER, vendor="nvidia", uuid=("parentUUID", "uuid"), memory=("memory", "bar")
    )
    made, uuid = shape_of(device("d", {"bar": {"value": "1"}}, uuid="u", parentUUID="p"), mapping)
    assert uuid == "p"
    assert made.memory is not None
    assert made.memory.name == "bar"
    assert made.cores is None


def test_a_capacity_with_an_invalid_quantity_is_left_out() -> None:
    made = shape_of(device("d", {"memory": {"value": "x"}, "cores": {"value": "1"}}), MAPPING)[0]
    assert [rule.name for rule in made.capacities] == ["cores"]


@pytest.mark.parametrize(
    ("condition", "meets"),
    [
        (wanting("productName", "x"), True),
        (wanting("productName", "y"), False),
        (wanting("type", "gpu"), True),
        (wanting("type", "mig"), False),
        (wanting("profile", "1g"), False),
        (wanting("brand", "z"), True),
        (wanting("productName", "y", "other.com"), True),
        (DeviceCondition(frozenset((DRIVER,))), True),
        (DeviceCondition(frozenset(("other",))), False),
        (DeviceCondition(shared=True), False),
        (DeviceCondition(shared=False), True),
        (DeviceCondition(), True),
    ],
)
def test_a_condition_excludes_only_certain_differences(
    condition: DeviceCondition, meets: bool
) -> None:
    assert shape(productName="x", type="gpu", brand="b").meets(condition) is meets


def test_long_texts_are_cut_and_still_compared() -> None:
    text = "x" * (TEXT_MAX + 50)
    made = shape(productName=text)
    assert len(made.product) == TEXT_MAX
    assert made.meets(wanting("productName", text))
    assert not made.meets(wanting("productName", "x"))
