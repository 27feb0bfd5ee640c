"""Victims are as few and of as low priority as possible."""

from collections.abc import Sequence

from extender.preemption.victim_choice import Candidate, choose, eviction_cost
from ledger.core.model.cards import Part, Phase, Placement, Share


def _pod(
    name: str, priority: int = 0, *, memory: int = 10, time: int = 1, budgets: tuple[str, ...] = ()
) -> Candidate:
    parts = (Part("main", Phase.APP, (Share("GPU-0", memory, 0),)),)
    placed = Placement(name, "east/n1", parts, {}, time)
    return Candidate(("east/team", f"pods/{name}", name), placed, priority, budgets)


def _frees(memory: int):
    def fits(leaving: Sequence[Candidate]) -> bool:
        return sum(candidate.placed.parts[0].shares[0].memory for candidate in leaving) >= memory

    return fits


def _names(chosen: tuple[Candidate, ...] | None) -> list[str] | None:
    return None if chosen is None else [victim.subject[2] for victim in chosen]


def test_no_victim_is_chosen_when_the_pod_fits() -> None:
    assert choose([_pod("a")], {}, _frees(0)) == ()
    assert choose([], {}, _frees(0)) == ()


def test_no_victim_is_chosen_when_evictions_do_not_help() -> None:
    assert choose([_pod("a"), _pod("b")], {}, _frees(30)) is None


def test_the_least_important_one_leaves() -> None:
    pods = [_pod("a", 5), _pod("b", 3), _pod("c", 4)]
    assert _names(choose(pods, {}, _frees(10))) == ["b"]


def test_of_equals_the_youngest_leaves() -> None:
    pods = [_pod("a", time=2), _pod("b", time=3), _pod("c", time=1)]
    assert _names(choose(pods, {}, _frees(10))) == ["b"]


def test_several_unimportant_ones_leave_before_one_that_is_important() -> None:
    pods = [_pod("a", 5, memory=30), *(_pod(name, 1) for name in "bcd")]
    assert _names(choose(pods, {}, _frees(30))) == ["b", "c", "d"]


def test_of_one_priority_a_single_one_leaves_before_several() -> None:
    old = _pod("old", memory=20, time=1)
    young = [_pod(name, time=2) for name in "ab"]
    assert _names(choose([old, *young], {}, _frees(20))) == ["old"]


def test_younger_of_two_sufficient_pods_is_the_victim_even_if_smaller() -> None:
    pods = [_pod("old", memory=21, time=1), _pod("young", memory=20, time=2)]
    assert _names(choose(pods, {}, _frees(20))) == ["young"]


def test_budget_that_allows_no_disruption_protects_its_pods() -> None:
    pods = [_pod("a", 1, budgets=("b1",)), _pod("b", 2)]
    assert _names(choose(pods, {"b1": 0}, _frees(10))) == ["b"]
    assert choose(pods, {"b1": 0}, _frees(20)) is None


def test_a_budget_that_lets_one_go_is_not_overdrawn() -> None:
    pods = [_pod(name, at, budgets=("b1",)) for at, name in enumerate("abc")]
    assert _names(choose(pods, {"b1": 1}, _frees(10))) == ["a"]
    assert choose(pods, {"b1": 1}, _frees(20)) is None


def test_a_pod_under_two_budgets_needs_both() -> None:
    pods = [_pod("a", budgets=("b1", "b2"))]
    assert choose(pods, {"b1": 1, "b2": 0}, _frees(10)) is None
    assert _names(choose(pods, {"b1": 1, "b2": 1}, _frees(10))) == ["a"]


def test_cost_orders_by_priority_then_number_then_age_of_victims() -> None:
    cheap_first = [
        [],
        [_pod("a", 1, time=1), _pod("b", 1, time=1)],
        [_pod("a", 2, time=5)],
        [_pod("a", 2, time=4)],
        [_pod("a", 2, time=9), _pod("b", 1, time=9)],
    ]
    assert sorted(cheap_first, key=eviction_cost) == cheap_first
