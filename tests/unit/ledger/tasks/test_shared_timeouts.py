"""Shared timeouts end waits as `asyncio.timeout_at` does, with one timer for all."""

import asyncio
import random
from typing import Any

import pytest

from ledger.tasks.shared_timeouts import COALESCED_SECONDS, SharedTimeouts

DEADLINE_SECONDS = 10.0


def now() -> float:
    return asyncio.get_running_loop().time()


async def late(timeouts: SharedTimeouts, seconds: float) -> float:
    """Return how long after its deadline a wait ended."""
    until = now() + seconds
    with pytest.raises(TimeoutError), timeouts.at(until):
        await asyncio.Event().wait()
    return now() - until


async def test_wait_ends_at_its_deadline_and_not_earlier() -> None:
    timeouts = SharedTimeouts()
    chance = random.Random(1)
    seconds = [chance.uniform(0.0, 0.3) for _ in range(50)]
    async with asyncio.timeout(DEADLINE_SECONDS):
        delays = await asyncio.gather(*(late(timeouts, each) for each in seconds))
    assert min(delays) >= 0
    assert sorted(delays)[len(delays) // 2] < COALESCED_SECONDS + 0.05


async def test_earlier_deadline_of_a_later_wait_counts() -> None:
    timeouts = SharedTimeouts()
    long = asyncio.create_task(late(timeouts, DEADLINE_SECONDS))
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE_SECONDS / 2):
        await late(timeouts, 0.01)
    long.cancel()


async def test_wait_in_time_is_not_ended() -> None:
    timeouts = SharedTimeouts()
    for _ in range(100):
        with timeouts.at(now() + 0.02):
            await asyncio.sleep(0)
    await asyncio.sleep(0.1)


async def test_deadline_in_the_past_ends_the_first_wait() -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        await late(SharedTimeouts(), -1.0)


async def test_cancellation_from_outside_stays_a_cancellation() -> None:
    task = asyncio.create_task(late(SharedTimeouts(), 0.01))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancellation_beside_the_deadline_stays_one() -> None:
    timeouts = SharedTimeouts()

    async def both() -> None:
        with timeouts.at(now() + 0.01):
            try:
                await asyncio.Event().wait()
            finally:
                task.cancel()

    task = asyncio.create_task(both())
    with pytest.raises(asyncio.CancelledError):
        await task


def timers_of(timeouts: SharedTimeouts, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the times of the timers that these timeouts will start."""
    loop = asyncio.get_running_loop()
    started: list[float] = []
    call_at = loop.call_at

    def counted(when: float, callback: Any, *of: Any, **how: Any) -> asyncio.TimerHandle:
        if getattr(callback, "__self__", None) is timeouts:
            started.append(when)
        return call_at(when, callback, *of, **how)

    monkeypatch.setattr(loop, "call_at", counted)
    return started


async def test_one_timer_serves_all_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts = SharedTimeouts()
    started = timers_of(timeouts, monkeypatch)
    for _ in range(1_000):
        with timeouts.at(now() + 60):
            await asyncio.sleep(0)
    assert len(started) == 1


async def test_no_timer_runs_for_waits_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts = SharedTimeouts()
    started = timers_of(timeouts, monkeypatch)
    for _ in range(10):
        with timeouts.at(now() + 0.01):
            await asyncio.sleep(0)
    await asyncio.sleep(4 * COALESCED_SECONDS)
    assert len(started) == 1


async def test_waits_with_close_deadlines_end_by_few_timers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timeouts = SharedTimeouts()
    started = timers_of(timeouts, monkeypatch)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*(late(timeouts, number / 1_000) for number in range(10, 30)))
    assert len(started) <= 3


async def test_nested_waits_end_by_their_own_deadlines() -> None:
    timeouts = SharedTimeouts()
    with timeouts.at(now() + DEADLINE_SECONDS):
        await late(timeouts, 0.01)
        await asyncio.sleep(0)


def test_use_outside_a_task_is_an_error() -> None:
    async def outside() -> object:
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[object] = loop.create_future()
        loop.set_exception_handler(lambda _, context: failed.set_result(context))
        loop.call_soon(SharedTimeouts().at(now()).__enter__)
        return await failed

    assert "outside a task" in str(asyncio.run(outside()))
