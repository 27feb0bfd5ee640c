"""Few pods that fit nowhere are waited for, so that the scheduler goes on with the others."""

import pytest

from extender.verbs.filter_wait import (
    AGAIN_EVERY_SECONDS,
    AGAIN_SECONDS,
    FREED_EVERY_SECONDS,
    FREED_SECONDS,
    WAITS_MAX,
    FilterWaitBudget,
)


def test_a_pod_is_waited_for_only_once_it_has_been_asked_about_before():
    budget = FilterWaitBudget(0.0)
    assert budget.seconds_for("a", 0.0, is_claimed=False) == 0.0
    assert budget.seconds_for("b", 0.0, is_claimed=False) == 0.0
    assert budget.seconds_for("a", 0.0, is_claimed=False) == AGAIN_SECONDS


def test_filter_waits_at_once_and_longer_for_a_preemptor():
    assert FilterWaitBudget(0.0).seconds_for("a", 0.0, is_claimed=True) == FREED_SECONDS


@pytest.mark.parametrize(
    ("is_claimed", "every"), [(False, AGAIN_EVERY_SECONDS), (True, FREED_EVERY_SECONDS)]
)
def test_of_many_pods_few_are_waited_for_and_one_more_after_each_pause(
    *, is_claimed: bool, every: float
):
    budget = FilterWaitBudget(0.0)

    def waits(now: float) -> int:
        seconds = [
            budget.seconds_for(f"p-{number}", now, is_claimed=is_claimed) for number in range(20)
        ]
        longest = FREED_SECONDS if is_claimed else AGAIN_SECONDS
        return seconds.count(longest)

    if not is_claimed:
        assert waits(0.0) == 0
    assert waits(0.0) == WAITS_MAX
    assert waits(every / 2) == 0
    assert waits(every) == 1
    assert waits(1_000 * every) == WAITS_MAX
