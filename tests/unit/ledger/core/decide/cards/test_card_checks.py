"""Card rules: what else than sums decides whether a pod may have a card."""

from typing import Any

import msgspec
import pytest
from support.builders.card_nodes import (
    TEAM,
    after,
    app,
    card,
    do,
    ended,
    place,
    pod,
    refused,
    register,
    seen,
    share,
    unplace,
)

from ledger.core import invariants
from ledger.core.decide.decider import decide
from ledger.core.model.cards import MIG, Part, Phase, Profile
from ledger.core.model.denials import Denial
from ledger.core.model.state import State

PROFILES = (
    Profile("1g", 5, 10, 1, ((0, 1), (1, 1), (2, 1), (3, 1))),
    Profile("2g", 10, 20, 2, ((0, 2), (2, 2))),
)


def _instance(start: int, *, profile: str = "1g", **changes: Any):
    memory, cores, size = (5, 10, 1) if profile == "1g" else (10, 20, 2)
    fields = {"memory": memory, "cores": cores, "size": size, **changes}
    return share(0, profile=profile, start=start, **fields)


def _cut() -> State:
    return after(register(card(0, mode=MIG, profiles=PROFILES)), pod("a"), pod("b"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"healthy": False}, "CardNotHealthy"), ({"cordoned": True}, "CardCordoned")],
)
def test_unhealthy_or_cordoned_card_is_refused(changes, reason) -> None:
    state = after(register(card(0, **changes)), pod("a"))
    assert refused(state, place("a", share())) == reason
    do(state, place("a", share(), seen=True))


def test_lost_card_is_refused_although_a_pod_holds_it() -> None:
    state = after(register(card(0)), pod("a"), pod("b"), place("a", share()))
    do(state, register(card(1)))
    assert refused(state, place("b", share(0))) == "CardNotFound"


def test_exclusive_card_is_refused_to_other_pods() -> None:
    state = after(register(card(0, cores=200)), pod("a"), pod("b"))
    do(state, place("a", share(0, 10, 100, exclusive=True)))
    assert refused(state, place("b", share())) == "ExclusiveDeviceAllocateConflict"
    do(state, unplace("a"), place("b", share()))


@pytest.mark.parametrize(("space", "who"), [(TEAM, "pods/a"), ("c1/b", "a pod of another ")])
def test_who_is_in_the_way_is_named_to_its_own_namespace_alone(space: str, who: str) -> None:
    state = after(register(card(0, cores=200)), pod("a"))
    do(state, place("a", share(0, 10, 100, exclusive=True)))
    do(state, msgspec.structs.replace(pod("b"), namespace=space))
    denial = decide(state, msgspec.structs.replace(place("b", share()), namespace=space))
    assert isinstance(denial, Denial)
    assert who in denial.message
    assert ("pods/a" in denial.message) is (space == TEAM)


def test_card_in_use_is_refused_for_exclusive_use() -> None:
    state = after(register(card(0, cores=200)), pod("a"), pod("b"), place("b", share()))
    alone = place("a", share(0, 10, 100, exclusive=True))
    assert refused(state, alone) == "ExclusiveDeviceAllocateConflict"
    do(state, seen("b"), ended("b"), alone)


def test_two_running_containers_of_a_pod_cannot_both_have_a_card_alone() -> None:
    state = after(register(card(0, cores=200)), pod("a"))
    whole = share(0, 10, 100, exclusive=True)
    together = (Part("one", Phase.APP, (whole,)), Part("two", Phase.APP, (share(),)))
    assert refused(state, place("a", parts=together)) == "ExclusiveDeviceAllocateConflict"
    beside = (Part("proxy", Phase.SIDECAR, (whole,)), Part("load", Phase.INIT, (share(),)))
    assert refused(state, place("a", parts=beside)) == "ExclusiveDeviceAllocateConflict"
    assert refused(state, place("a", whole, share())) == "ExclusiveDeviceAllocateConflict"


def test_containers_that_run_after_one_another_can_have_one_card_alone() -> None:
    state = after(register(card(0)), pod("a"))
    whole = share(0, 10, 100, exclusive=True)
    parts = (
        Part("load", Phase.INIT, (whole,)),
        Part("check", Phase.INIT, (whole,)),
        Part("main", Phase.APP, (whole,)),
    )
    do(state, place("a", parts=parts))
    assert list(invariants.violations(state)) == []


def test_who_wants_an_unused_card_gets_no_used_one() -> None:
    state = after(register(card(0)), pod("a"), pod("b"), place("a", share()))
    assert refused(state, place("b", share(), alone=True)) == "ExclusiveDeviceAllocateConflict"
    do(state, unplace("a"), place("b", share(), alone=True))


def test_card_without_free_cores_is_refused_when_no_cores_are_requested() -> None:
    state = after(register(card(0)), pod("a"), pod("b"), place("a", share(0, 10, 100)))
    assert refused(state, place("b", share(0, 10, 0))) == "CardComputeUnitsExhausted"


def test_instances_lie_where_they_can_and_do_not_overlap() -> None:
    state = _cut()
    do(state, place("a", _instance(1)))
    overlapping = place("b", _instance(0, profile="2g"))
    assert refused(state, overlapping) == "CardMigTopologyInfeasible"
    do(state, place("b", _instance(2, profile="2g")))
    assert list(invariants.violations(state)) == []


@pytest.mark.parametrize(
    "wanted",
    [
        share(0, 5, 10),
        _instance(1, profile="2g"),
        _instance(0, memory=6),
        _instance(0, cores=11),
        _instance(0, size=2),
        share(0, 5, 10, profile="3g", start=0, size=1),
    ],
)
def test_share_that_is_not_a_possible_instance_is_refused(wanted) -> None:
    assert refused(_cut(), place("a", wanted)) == "CardMigTopologyInfeasible"


def test_two_instances_of_one_pod_do_not_overlap() -> None:
    parts = app(_instance(1), _instance(1))
    assert refused(_cut(), place("a", parts=parts)) == "CardMigTopologyInfeasible"
    do(_cut(), place("a", _instance(0), _instance(1)))


def test_a_whole_card_has_no_instances() -> None:
    state = after(register(card(0, profiles=PROFILES)), pod("a"))
    assert refused(state, place("a", _instance(0))) == "CardMigTopologyInfeasible"


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (Part("main", Phase.APP),),
        (Part("main", Phase.APP), Part("load", Phase.INIT, (share(),))),
        app(share(0, -1)),
        app(share(0, 10, -1)),
        app(share(0, 2**53 + 1)),
        app(share(0, 5, profile="1g", start=-1, size=1)),
        app(*(share() for _ in range(1_025))),
    ],
)
def test_impossible_parts_are_a_defect_of_the_caller(parts) -> None:
    state = after(register(card(0)), pod("a"))
    asked = place("a", share())
    asked = type(asked)(asked.namespace, asked.key, asked.uid, asked.node, parts)
    assert refused(state, asked) == "InvalidPlacement"
