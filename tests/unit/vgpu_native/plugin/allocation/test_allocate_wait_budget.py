"""The wait budget: consecutive calls share the time for which the kubelet waits."""

import asyncio

import pytest
from support.harness.device_plugin import FakePlacements

from vgpu_native.plugin.allocation.allocate_wait_budget import (
    LEAST_SECONDS,
    ROW_SECONDS,
    AllocateWaitBudget,
)
from vgpu_native.plugin.plugin_settings import PluginSettings

SETTINGS = PluginSettings(allocate_seconds=4.0, outage_seconds=20.0)


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def now(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def placed() -> FakePlacements:
    placements = FakePlacements()
    placements.trouble = "the log is away"
    return placements


@pytest.fixture
def budget(placed: FakePlacements, clock: Clock) -> AllocateWaitBudget:
    return AllocateWaitBudget(SETTINGS, placed, now=clock.now)


async def test_the_wait_is_bounded_when_the_ledger_is_out_of_reach(
    budget: AllocateWaitBudget, clock: Clock
) -> None:
    with budget.waiting() as call:
        clock.time += 19.9
        assert (call.is_over, call.caught_up, call.may_repeat) == (False, False, False)
        clock.time += 0.1
        assert (call.is_over, call.caught_up, call.may_repeat) == (True, False, False)


async def test_the_wait_begins_again_when_the_ledger_is_back_in_reach(
    budget: AllocateWaitBudget, placed: FakePlacements, clock: Clock
) -> None:
    with budget.waiting() as call:
        clock.time += 19.0
        placed.trouble = ""
        async with asyncio.timeout(20):
            while not call.caught_up:  # noqa: ASYNC110 - the flag sends no event
                await asyncio.sleep(0.001)
        assert (call.may_repeat, call.is_over) == (False, False)
        clock.time += 2.0
        assert (call.may_repeat, call.is_over) == (True, False)
        clock.time += 2.0
        assert (call.may_repeat, call.is_over) == (True, True)


async def test_consecutive_calls_share_one_wait_budget(
    budget: AllocateWaitBudget, clock: Clock
) -> None:
    with budget.waiting():
        clock.time += 15.0
    clock.time += ROW_SECONDS
    with budget.waiting() as second:
        clock.time += 3.9
        before = second.is_over
        clock.time += 0.1
        assert (before, second.is_over) == (False, True)
    with budget.waiting() as third:
        assert not third.is_over, "each may wait a little"
        clock.time += LEAST_SECONDS
        assert third.is_over


async def test_concurrent_calls_share_one_wait_budget(
    budget: AllocateWaitBudget, clock: Clock
) -> None:
    with budget.waiting() as first:
        clock.time += 15.0
        with budget.waiting() as second:
            clock.time += 5.0
            assert first.is_over
            assert second.is_over


async def test_a_call_has_the_whole_budget_after_a_pause(
    budget: AllocateWaitBudget, clock: Clock
) -> None:
    with budget.waiting():
        clock.time += 20.0
    clock.time += ROW_SECONDS + 0.1
    with budget.waiting() as second:
        clock.time += 19.0
        assert not second.is_over


async def test_the_budget_reports_how_long_the_kubelet_waits(
    budget: AllocateWaitBudget, clock: Clock
) -> None:
    assert budget.seconds == 0
    with budget.waiting():
        clock.time += 7.0
        assert budget.seconds == 7.0
    assert budget.seconds == 0
