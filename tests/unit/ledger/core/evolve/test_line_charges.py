"""Line charges: each change obeys its rule, and one that breaks it charges nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.core.evolve.line_charges import (
    FALLING,
    TRUTH,
    WITHIN_LIMITS,
    InvariantError,
    post_change,
)
from ledger.core.model.amounts import Amounts
from ledger.core.model.state import Plan, State

A, B = "nvidia.com/gpu", "nvidia.com/gpumem"
PLAN = Plan((A, B, A), (0, 1, 2))

amounts = st.dictionaries(st.sampled_from((A, B)), st.integers(0, 3))


def lines(used: list[int], limit: list[int]) -> State:
    state = State()
    state.used, state.limit, state.journal = used, limit, []
    state.names = [("quota/c/n/q", A), ("quota/c/n/q", B), ("universe/u", A)]
    return state


def allowed(state: State, before: Amounts, after: Amounts, rule: int) -> bool:
    for resource, line in PLAN.pairs():
        delta = after.get(resource, 0) - before.get(resource, 0)
        new = state.used[line] + delta
        if new < 0 or (delta > 0 and rule == FALLING):
            return False
        if delta > 0 and rule == WITHIN_LIMITS and new > state.limit[line]:
            return False
    return True


@given(
    amounts,
    amounts,
    st.sampled_from((TRUTH, WITHIN_LIMITS, FALLING)),
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
)
def test_a_change_is_posted_as_a_plain_sum_would_be(
    before: Amounts, after: Amounts, rule: int, used: list[int], limit: list[int]
) -> None:
    state = lines(list(used), limit)
    if not allowed(state, before, after, rule):
        with pytest.raises(InvariantError):
            post_change(state, PLAN, before, after, rule)
        assert (state.used, state.journal) == (used, [])
        return
    postings = post_change(state, PLAN, before, after, rule)
    change = [after.get(resource, 0) - before.get(resource, 0) for resource in PLAN.resources]
    assert state.used == [old + delta for old, delta in zip(used, change, strict=True)]
    assert postings == [
        number
        for line, delta in zip(PLAN.lines, change, strict=True)
        if delta
        for number in (line, delta, used[line] + delta)
    ]
    state.undo()
    assert state.used == used


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ({}, {A: 1}, WITHIN_LIMITS),
        ({B: 1}, {A: 1, B: 1}, WITHIN_LIMITS),
        ({}, {A: 1}, FALLING),
        ({A: 1, B: 9}, {}, FALLING),
        ({A: 9, B: 1}, {B: 1}, TRUTH),
    ],
)
def test_a_change_that_breaks_a_later_line_charges_no_line(
    before: Amounts, after: Amounts, rule: int
) -> None:
    state = lines([1, 1, 1], [9, 9, 1])
    with pytest.raises(InvariantError, match="would go from"):
        post_change(state, PLAN, before, after, rule)
    assert state.used == [1, 1, 1]


def test_a_falling_charge_rises_on_no_line_that_has_room() -> None:
    state = lines([1, 1, 1], [9, 9, 9])
    for before in ({}, {B: 1}):
        with pytest.raises(InvariantError, match="would go from"):
            post_change(state, PLAN, before, {A: 1, B: 1}, FALLING)
    assert state.used == [1, 1, 1]
