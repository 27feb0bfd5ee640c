"""Claim demand: the most that a claim could consume, on any supply and for any input."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.claims.device_supplies import (
    CARD,
    CORES,
    DRIVER,
    GIB,
    H100,
    MEMORY,
    asking,
    claim_spec,
    device,
    device_class,
    resource_slice,
    shared_card,
    whole_card,
    world,
)

from ledger.core.model.amounts import OBJECT_MAX, covers
from ledger.core.model.denials import Denial, Reason
from ledger.kube.requests.demand_rules import CardSize, DemandRules
from ledger.kube.requests.gpu_type_annotation import parse_types
from ledger.kube.resource_claims import claim_demand
from ledger.kube.resource_claims.claim_demand import ClaimBound, ClaimWorld, bound_of
from ledger.kube.resource_claims.device_classes import Unmapped
from ledger.kube.resource_claims.dra_objects import ResourceSlice
from ledger.kube.resource_claims.selector_conditions import READ_MAX
from ledger.kube.vendors.vendors import BUILT_IN, NVIDIA

N1 = resource_slice(shared_card("g0"), shared_card("g1"), whole_card("w0"), node="n1")
N2 = resource_slice(
    shared_card("g0", "40Gi", "NVIDIA A100"), whole_card("w0", "24Gi", "NVIDIA L4"), node="n2"
)
WORLD = world(N1, N2)
MANY = 2**63 - 1


def bound(*requests: Any, within: ClaimWorld = WORLD) -> ClaimBound:
    result = bound_of(claim_spec(*requests), within)
    assert isinstance(result, ClaimBound), result
    return result


def amounts(*requests: Any, within: ClaimWorld = WORLD) -> tuple[int, int, int]:
    charged = bound(*requests, within=within).demand.amounts
    return tuple(charged.get(name, 0) for name in (CARD, MEMORY, CORES))  # type: ignore[return-value]


def denied(*requests: Any, within: ClaimWorld = WORLD) -> Denial:
    result = bound_of(claim_spec(*requests), within)
    assert isinstance(result, Denial), result
    assert not result.transient
    return result


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (asking("shared", memory="7500Mi", cores="30"), (1, 8 * GIB, 30)),
        (asking("shared", memory="7500Mi"), (1, 8 * GIB, 10)),
        (asking("shared"), (1, GIB, 10)),
        (asking("shared", count=3, memory="1"), (3, 3 * GIB, 30)),
        (asking("shared", requests={f"{DRIVER}/memory": "2Gi"}), (1, 2 * GIB, 10)),
        (asking("gpu"), (1, 48 * GIB, 100)),
        (asking("gpu", memory="7500Mi"), (1, 48 * GIB, 100)),
        (asking("gpu", memory="60Gi", cores="1"), (1, 60 * GIB, 1)),
        (asking("gpu", memory="49Gi"), (1, 49 * GIB, 10)),
        (asking("h100", memory="2Gi"), (1, 2 * GIB, 10)),
        (asking("gpu", count=0), (1, 48 * GIB, 100)),
    ],
)
def test_bound_is_the_largest_of_all_candidates(
    request_: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    assert amounts(request_) == expected


def test_bound_is_the_sum_of_all_requests() -> None:
    first, second = asking("shared", memory="3Gi"), asking("gpu", count=2)
    assert amounts(first, second) == (3, (3 + 2 * 48) * GIB, 210)


def test_bound_of_alternatives_is_the_largest_of_each_resource() -> None:
    memory, cores = asking("shared", memory="70Gi", cores="1"), asking("shared", cores="90")
    assert amounts([memory, cores]) == (1, 70 * GIB, 90)
    assert amounts([memory, cores | {"count": 2}]) == (2, 70 * GIB, 180)


def test_alternatives_that_can_never_be_allocated_do_not_count() -> None:
    few, many = asking("shared", memory="1Gi"), asking("shared", count=33, memory="1Gi")
    assert amounts([few, many]) == (1, GIB, 10)
    most = asking("shared", count=30, memory="1Gi")
    assert amounts([few, asking("shared", count=3)], most) == (31, 31 * GIB, 310)
    assert amounts([few, asking("shared", count=2)], most) == (32, 32 * GIB, 320)


def test_all_counts_the_most_devices_of_a_node() -> None:
    every = {"allocationMode": "All", "count": 0}
    assert amounts(asking("shared", memory="2Gi") | every) == (2, 4 * GIB, 20)
    assert amounts(asking("gpu") | every) == (3, 3 * 48 * GIB, 300)
    assert amounts(asking("gpu", memory="60Gi") | every) == (2, 120 * GIB, 20)
    assert CARD in bound(asking("gpu") | every, asking("gpu")).demand.assumed
    assert CARD not in bound(asking("gpu")).demand.assumed
    large = world(*(resource_slice(*(shared_card(f"g{n}") for n in range(100))),))
    assert amounts(asking("shared") | every, within=large)[0] == 32
    assert amounts(asking("shared") | every, asking("shared", count=31), within=large)[0] == 32
    assert amounts(asking("gpu") | every, within=world())[0] == 32


def test_administration_is_not_charged() -> None:
    result = bound(asking("gpu", adminAccess=True), asking("shared"))
    assert result.demand.amounts[CARD] == 1


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        ([asking("shared", count=MANY)], "devices.requests[0].exactly.count"),
        ([asking("shared"), asking("nothing", count=33)], "devices.requests[1].exactly.count"),
        ([asking("shared", count=20), asking("shared", count=13)], "devices.requests"),
        ([[asking("shared", count=MANY)]], "devices.requests[0].firstAvailable"),
        ([asking("shared", count=MANY, adminAccess=True)], "devices.requests[0].exactly.count"),
        ([asking("shared")] * 33, "devices.requests"),
    ],
)
def test_more_devices_than_an_allocation_holds_are_refused(requests: list[Any], field: str) -> None:
    denial = denied(*requests)
    assert (denial.reason, denial.field) == (Reason.TOO_MANY_DEVICES, field)
    assert denial.value in denial.message
    assert "at most 32" in denial.message
    assert int(denial.value) > 32


@pytest.mark.parametrize(
    ("capacities", "name", "why"),
    [
        ({"memory": "-1Gi"}, "memory", "is negative"),
        ({"memory": "lots"}, "memory", "is not a quantity"),
        ({"other": "1" * 65}, "other", "is longer than"),
        ({"memory": "1e999"}, "memory", "is beyond"),
        ({"memory": "1Gi", f"{DRIVER}/memory": "1Gi"}, f"{DRIVER}/memory", "requested twice"),
        ({"cores": "1", f"{DRIVER}/cores": "2"}, f"{DRIVER}/cores", "requested twice"),
    ],
)
def test_invalid_capacities_are_refused_with_their_field(
    capacities: dict[str, str], name: str, why: str
) -> None:
    denial = denied(asking("shared"), [asking("shared"), asking("shared", requests=capacities)])
    assert denial.reason is Reason.INVALID_QUANTITY
    assert denial.field == f"devices.requests[1].firstAvailable[1].capacity.requests[{name}]"
    assert why in denial.message


def test_amounts_beyond_any_cluster_are_refused() -> None:
    denial = denied(asking("shared", memory="8Ei"))
    assert (denial.reason, denial.field) == (Reason.INVALID_QUANTITY, "devices.requests")
    assert str(OBJECT_MAX) in denial.message
    assert amounts(asking("shared", memory="1Ei"))[1] == 2**40


def test_capacities_of_another_domain_are_not_those_of_the_driver() -> None:
    result = bound(asking("shared", memory="2Gi", requests={"other.com/memory": "1Gi"}))
    assert "no device of the class shared" in result.warnings[0]


def test_requests_that_no_device_satisfies_count_as_requested() -> None:
    result = bound(asking("shared", memory="200Gi", cores="5"))
    assert result.demand.amounts == {CARD: 1, MEMORY: 200 * GIB, CORES: 5}
    assert result.warnings == ("no device of the class shared can satisfy the request r0 now",)
    assert amounts(asking("shared", memory="200Gi")) == (1, 200 * GIB, 0)


def test_a_whole_card_counts_when_nothing_is_known() -> None:
    empty = world()
    result = bound(asking("gpu"), within=empty)
    assert result.demand.amounts == {CARD: 1, CORES: 100}
    assert (result.demand.unknown, result.demand.memory_unknown) == (
        MEMORY,
        "devices.requests[0].exactly",
    )
    worst = world(rules=DemandRules(worst_card_memory=50_000))
    assert amounts(asking("gpu"), within=worst) == (1, 50_000, 100)
    seen = world(rules=DemandRules(sizes=(CardSize("nvidia", "x", 40_000),)))
    assert amounts(asking("gpu", cores="7"), within=seen) == (1, 40_000, 7)


def test_memory_that_a_driver_cannot_read_is_that_of_a_whole_card() -> None:
    zero = resource_slice(device("d", {"memory": {"value": "0"}}), node="z")
    assert bound(asking("gpu"), within=world(zero, N1)).demand.unknown == MEMORY
    rules = DemandRules(worst_card_memory=90_000)
    assert amounts(asking("gpu"), within=world(zero, N1, rules=rules)) == (1, 90_000, 100)


def test_two_unknown_memories_are_refused() -> None:
    classes = [device_class("n", f"device.driver == '{DRIVER}'")]
    classes.append(device_class("a", "device.driver == 'gpu.amd.com'"))
    both = world(classes=classes, rules=DemandRules(vendors=(NVIDIA, BUILT_IN[1])))
    denial = denied(asking("n"), asking("a"), within=both)
    assert denial.reason is Reason.CARD_MEMORY_UNKNOWN
    assert "amd.com/gpumem" in denial.message


def test_absurd_announcements_are_bounded_by_the_largest_card() -> None:
    huge = resource_slice(whole_card("w", "1Ei"), node="bad")
    assert amounts(asking("gpu"), within=world(N1, huge, card_memory_max=100_000))[1] == 100_000
    forced = device(
        "d", {"memory": {"value": "1Ei", "requestPolicy": {"default": "1Pi"}}}, shared=True
    )
    bad = world(N1, resource_slice(forced, node="bad"), card_memory_max=100_000)
    assert amounts(asking("shared"), within=bad)[1] == 100_000
    assert amounts(asking("shared", memory="200000Mi"), within=bad)[1] == 200_000


def test_each_type_is_charged_by_its_largest_candidate() -> None:
    rules = DemandRules(types=parse_types(["h100", "h100-80gb", "a100", "l4"]))
    typed = world(N1, N2, rules=rules)
    result = bound(asking("h100", memory="2Gi"), within=typed).demand
    assert result.amounts == {
        f"{prefix}{name}": amount
        for prefix in ("", "h100.", "h100-80gb.")
        for name, amount in ((CARD, 1), (MEMORY, 2 * GIB), (CORES, 10))
    }
    assert set(result.assumed) == result.amounts.keys() - {CARD}
    either = bound(asking("gpu", count=2, memory="7500Mi"), within=typed).demand.amounts
    assert (either[CARD], either[MEMORY], either[CORES]) == (2, 96 * GIB, 200)
    for card_type, memory, cores in (("a100", 16 * GIB, 20), ("l4", 48 * GIB, 200)):
        of_type = [either[f"{card_type}.{name}"] for name in (CARD, MEMORY, CORES)]
        assert of_type == [2, memory, cores]


def test_classes_decide_what_is_charged() -> None:
    classes = [device_class("nic", "device.driver == 'dra.net'"), device_class("open", "true")]
    classes.append(device_class("amd", "device.driver == 'gpu.amd.com'"))
    made = world(N1, classes=classes)
    assert bound(asking("nic", count=9), within=made) == ClaimBound(bound(within=made).demand)
    result = bound(asking("open"), [asking("nic"), asking("gone")], within=made)
    assert result.unmapped == (
        Unmapped("open", "does not name its driver by device.driver == '…'"),
        Unmapped("gone", "does not exist", exists=False),
    )
    assert result.demand.amounts == {}
    assert result.warnings == ()
    other = bound(asking("amd"), within=made)
    assert other.demand.amounts == {}
    assert "the vendor amd, which are not charged" in other.warnings[0]


def test_a_bound_of_many_long_names_stays_small() -> None:
    forms = [[asking(f"{place}{number}" + "x" * 250) for place in range(8)] for number in range(32)]
    result = bound(*forms)
    assert len(result.unmapped) == claim_demand.NAMED_MAX
    assert len(str(result)) < 8_000


def test_names_of_missing_classes_are_not_kept() -> None:
    made = world(N1)
    for number in range(50):
        assert bound(asking(f"k{number}"), within=made).unmapped
    assert len(made._mapped) == 0
    assert amounts(asking("gpu"), within=made)
    assert len(made._mapped) == 1


def test_selectors_of_a_request_narrow_its_candidates() -> None:
    product = f"device.attributes['{DRIVER}'].productName == '{H100}'"
    narrow = asking("gpu", selectors=[{"cel": {"expression": product}}])
    assert amounts(narrow) == (1, GIB, 10)
    open_ = asking("gpu", selectors=[{"cel": {"expression": "device.capacity.size() > 3"}}])
    assert amounts(open_) == (1, 48 * GIB, 100)
    assert bound(open_).warnings == (
        "not all selectors are evaluated, so the request r0 counts as 1 device of the largest of 4"
        f" kinds of {DRIVER}",
    )
    assert not bound(narrow).warnings
    alone = world(resource_slice(whole_card("w", "70Gi")))
    assert not bound(open_, within=alone).warnings


def test_selectors_of_a_claim_are_read_up_to_a_number_of_characters() -> None:
    product = f"device.attributes['{DRIVER}'].productName == '{H100}'"
    narrow = asking("gpu", selectors=[{"cel": {"expression": product}}])
    long = asking("gpu", selectors=[{"cel": {"expression": "x" * (READ_MAX // 2)}}])
    assert amounts(narrow, long) == (2, 49 * GIB, 110)
    assert amounts(long, long, narrow) == (3, 3 * 48 * GIB, 300)


def test_a_bound_follows_changes_of_slices() -> None:
    made = world(N1)
    assert amounts(asking("gpu"), within=made)[1] == 48 * GIB
    made.supply.take_slice(resource_slice(whole_card("w", "70Gi"), node="n3"))
    assert amounts(asking("gpu"), within=made)[1] == 70 * GIB
    made.supply.take_slice(resource_slice(whole_card("w", "90Gi"), node="n3", slices=2))
    assert amounts(asking("gpu"), within=made)[1] == 48 * GIB
    made.supply.relist([])
    assert amounts(asking("gpu", memory="1Gi"), within=made)[1] == GIB


def test_remembered_bounds_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_demand, "REMEMBERED_MAX", 3)
    made = world(N1)
    for number in range(1, 9):
        assert amounts(asking("shared", memory=f"{number}Gi"), within=made)[1] == number * GIB
    assert len(made.remembered) <= 3


CARDS = st.builds(
    lambda number, memory, shared, product: (
        shared_card(f"c{number}", f"{memory}Gi", product)
        if shared
        else whole_card(f"c{number}", f"{memory}Gi", product)
    ),
    st.integers(0, 1_000),
    st.integers(1, 200),
    st.booleans(),
    st.sampled_from([H100, "NVIDIA A100"]),
)
ASKED = st.builds(
    lambda name, count, memory: asking(
        name, count=count, **({} if memory is None else {"memory": memory})
    ),
    st.sampled_from(["gpu", "shared", "h100"]),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(0, 300).map("{}Gi".format), st.just("7500Mi")),
)


def pool(cards: list[Any]) -> ResourceSlice:
    return resource_slice(*{card.name: card for card in cards}.values())


@given(st.lists(CARDS, max_size=5), ASKED, ASKED)
def test_alternatives_cover_each_and_less_than_the_sum(
    cards: list[Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    made = world(pool(cards))
    one_of = bound([first, second], within=made).demand.amounts
    both = bound(first, second, within=made).demand.amounts
    for each in (first, second):
        assert covers(one_of, bound(each, within=made).demand.amounts)
    assert covers(both, one_of)


@given(st.lists(CARDS, min_size=1, max_size=5), ASKED)
def test_bound_covers_what_each_device_would_consume(
    cards: list[Any], request_: dict[str, Any]
) -> None:
    made = world(pool(cards))
    each_one = [
        amounts(request_, within=world(resource_slice(card)))
        for card in {card.name: card for card in cards}.values()
        if not bound(request_, within=world(resource_slice(card))).warnings
    ]
    if each_one:
        largest = tuple(max(values) for values in zip(*each_one, strict=True))
        assert amounts(request_, within=made) == largest
    else:
        assert bound(request_, within=made).warnings


@given(st.lists(st.one_of(ASKED, st.lists(ASKED, min_size=1, max_size=3)), max_size=4))
def test_warnings_and_amounts_are_deterministic(requests: list[Any]) -> None:
    spec = claim_spec(*requests)
    assert bound_of(spec, WORLD) == bound_of(spec, world(N2, N1))
