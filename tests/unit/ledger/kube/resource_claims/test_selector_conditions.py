"""Selector conditions: a condition never excludes a device that the expression selects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.kube.resource_claims.dra_objects import CelSelector, ClaimDeviceSelector
from ledger.kube.resource_claims.selector_conditions import (
    ANY_DEVICE,
    EXPRESSION_MAX,
    OPEN,
    READ_MAX,
    DeviceCondition,
    condition_of,
)

D = "device.driver == 'a.b'"
A = frozenset(("a.b",))


def condition(*texts: str) -> DeviceCondition:
    return condition_of([ClaimDeviceSelector(CelSelector(text)) for text in texts])


@pytest.mark.parametrize(
    ("text", "drivers"),
    [
        (D, {"a.b"}),
        ('"a.b" == device.driver', {"a.b"}),
        ("(device.driver=='a.b')", {"a.b"}),
        ("((device . driver == 'a.b') && true)", {"a.b"}),
        (f"{D} // || true", {"a.b"}),
        (f"{D} &&\n device.attributes['a.b'].x.matches('^[a-z]+$')", {"a.b"}),
        (f"{D} && (x || y)", {"a.b"}),
        (f"{D} || device.driver == 'c'", {"a.b", "c"}),
        ("device.driver in ['a.b', \"c\"]", {"a.b", "c"}),
        (f"{D} && device.driver == 'c'", set()),
        (f"{D} && device.attributes['a.b'].?x.orValue('') == 'y'", {"a.b"}),
        (f"{D} && device.attributes['a.b'].name == 'it || not'", {"a.b"}),
        (f"cel.bind(x, true, x) && {D}", {"a.b"}),
    ],
)
def test_drivers_are_read_when_they_are_certain(text: str, drivers: set[str]) -> None:
    assert condition(text).drivers == frozenset(drivers)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "true",
        f"{D} || true",
        f"!({D})",
        f"{D} == false",
        f"x ? {D} : true",
        f"{D} ? false : true",
        f"{D} && x ? false : true",
        "device.driver in [\"a.b' , 'c\"]",
        f"true || ({D} && true)",
        "device.driver != 'a.b'",
        "device.driver.startsWith('a.b')",
        f"({D}",
        f"{D})",
        "device.driver == r'a.b'",
        r"device.driver == 'a\x2eb'",
        "device.driver == '''a.b'''",
        f"[{D}].exists(x, !x)",
        f"{D} || device.attributes['c'].x == 'y'",
        "'" + D + "' == 'x'",
    ],
)
def test_drivers_are_open_when_they_are_not_certain(text: str) -> None:
    assert condition(text).drivers is None


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("device.allowMultipleAllocations", True),
        ("!device.allowMultipleAllocations", False),
        ("device.allowMultipleAllocations == true", True),
        ("device.allowMultipleAllocations != true", False),
        ("device.allowMultipleAllocations == false", False),
        ("device.allowMultipleAllocations != false", True),
        ("!device.allowMultipleAllocations != true", True),
        ("device.allowMultipleAllocations || true", None),
        ("!(device.allowMultipleAllocations)", None),
    ],
)
def test_sharing_is_read_from_its_forms(text: str, shared: bool | None) -> None:
    assert condition(text).shared is shared


def test_equal_strings_of_attributes_are_read() -> None:
    attribute = ("a.b", "productName", "H100 80GB")
    for text in (
        "device.attributes['a.b'].productName == 'H100 80GB'",
        "device.attributes['a.b']['productName'] == \"H100 80GB\"",
        "'H100 80GB' == device.attributes['a.b'].productName",
    ):
        assert condition(f"{D} && {text}").attributes == {attribute}, text
    assert not condition(f"device.attributes['a.b'].x == 'y' || {D}").attributes


def test_all_selectors_must_hold() -> None:
    found_both = condition(D, "device.allowMultipleAllocations")
    assert found_both == DeviceCondition(A, True, frozenset(), exact=True)
    assert condition("device.allowMultipleAllocations", "!device.allowMultipleAllocations") == (
        DeviceCondition(frozenset(), False, exact=True)
    )
    assert condition() == ANY_DEVICE
    assert condition(D).exact
    assert not condition(D, "x.y").exact


def test_deep_and_long_expressions_are_open() -> None:
    assert condition("(" * 5_000 + D + ")" * 5_000) == OPEN
    assert condition(f"{D} && {'x' * EXPRESSION_MAX}") == OPEN


def test_selectors_are_read_up_to_a_number_of_characters() -> None:
    half = "x" * (READ_MAX // 2)
    assert condition(half, f"{D} // {half}"[: READ_MAX // 2]).drivers == A
    assert condition(half, half, D).drivers is None
    assert condition(D, half, half).drivers == A


WORDS = st.sampled_from(
    ["&&", "||", "!", "(", ")", "?", ":", "==", "'a'", '"', "'", "//", "\n", "true", "[", "]", D]
)


@given(st.lists(WORDS, max_size=12))
def test_any_text_is_read_without_an_error(words: list[str]) -> None:
    condition(" ".join(words))


SMALL = st.recursive(
    st.sampled_from(
        [
            ("device.driver == 'a'", lambda driver, shared: driver == "a"),
            ("device.driver == 'b'", lambda driver, shared: driver == "b"),
            ("device.driver != 'b'", lambda driver, shared: driver != "b"),
            ("device.allowMultipleAllocations", lambda driver, shared: shared),
            ("!device.allowMultipleAllocations", lambda driver, shared: not shared),
            ("true", lambda driver, shared: True),
        ]
    ),
    lambda inner: st.tuples(st.sampled_from(["&&", "||", "!"]), inner, inner).map(
        lambda made: (
            (f"!({made[1][0]})", lambda driver, shared: not made[1][1](driver, shared))
            if made[0] == "!"
            else (
                f"({made[1][0]}) {made[0]} ({made[2][0]})",
                (
                    (lambda d, s: made[1][1](d, s) and made[2][1](d, s))
                    if made[0] == "&&"
                    else (lambda d, s: made[1][1](d, s) or made[2][1](d, s))
                ),
            )
        )
    ),
    max_leaves=6,
)


@given(SMALL)
def test_a_condition_holds_for_each_selected_device(made) -> None:
    text, selects = made
    read = condition(text)
    for driver in ("a", "b", "c"):
        for shared in (False, True):
            meets = (read.drivers is None or driver in read.drivers) and (
                read.shared is None or shared == read.shared
            )
            assert meets or not selects(driver, shared), text
            assert not read.exact or meets == selects(driver, shared), text
