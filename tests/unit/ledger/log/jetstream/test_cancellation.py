"""Requests end when they are cancelled, when another one is answered, and with their connection.

A cancellation arrives, also when what was waited for arrives at the same moment.
"""

import asyncio
from collections.abc import Awaitable

import pytest

from ledger.log.jetstream.cancellation import (
    ConnectionLost,
    UnansweredRequests,
    first_answer,
    reraise_cancelled,
    run_apart,
)


async def cancelled_as_it_is_answered(waiting: Awaitable[int], answer: asyncio.Future[int]) -> int:
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answer.set_result(1)
    task.cancel()
    return await task


async def test_a_cancellation_at_the_moment_of_the_answer_is_kept() -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with pytest.raises(asyncio.CancelledError):
        await cancelled_as_it_is_answered(reraise_cancelled(asyncio.wait_for(answer, 5)), answer)


async def test_a_cancellation_at_the_moment_of_an_error_is_kept() -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def fail() -> int:
        await asyncio.wait_for(answer, 5)
        raise ConnectionError

    with pytest.raises(asyncio.CancelledError):
        await cancelled_as_it_is_answered(reraise_cancelled(fail()), answer)


async def test_what_arrives_in_time_is_returned() -> None:
    assert await reraise_cancelled(asyncio.sleep(0, 7)) == 7


async def test_deadline_inside_is_not_a_cancellation() -> None:
    async def late() -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError):
        await reraise_cancelled(late())


async def test_deadline_around_raises_a_timeout() -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await reraise_cancelled(answer)


class Asked:
    """Answers the question with a number, and no other; notes which were cancelled."""

    def __init__(self, answered: int) -> None:
        self.asked = 0
        self.cancelled: list[int] = []
        self._answered = answered

    async def __call__(self) -> int:
        self.asked = number = self.asked + 1
        try:
            await asyncio.sleep(0 if number == self._answered else 3600)
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        return number


async def test_a_question_without_an_answer_is_asked_again() -> None:
    ask = Asked(answered=3)
    async with asyncio.timeout(60):
        assert await first_answer(ask, 0.01) == 3
    assert sorted(ask.cancelled) == [1, 2]


async def test_a_question_is_asked_once_without_a_pause() -> None:
    ask = Asked(answered=2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await first_answer(ask, None)
    assert (ask.asked, ask.cancelled) == (1, [1])


async def test_a_question_that_fails_is_not_asked_again() -> None:
    async def fail() -> int:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await first_answer(fail, 0.01)


async def test_requests_of_a_lost_connection_end_and_those_of_others_go_on() -> None:
    unanswered = UnansweredRequests()

    async def request(client: str) -> None:
        async with unanswered.sent_by(client):
            await asyncio.sleep(3600)

    lost = [asyncio.create_task(request("lost")) for _ in range(2)]
    kept = asyncio.create_task(request("kept"))
    await asyncio.sleep(0)
    unanswered.lost("lost")
    unanswered.lost("lost")
    async with asyncio.timeout(60):
        ended = await asyncio.gather(*lost, return_exceptions=True)
    assert [type(error) for error in ended] == [ConnectionLost] * 2
    assert not kept.done()
    kept.cancel()
    with pytest.raises(asyncio.CancelledError):
        await kept
    assert not unanswered._limits


async def test_a_request_of_the_next_connection_ends_with_that_one() -> None:
    unanswered = UnansweredRequests()

    async def request() -> None:
        async with unanswered.sent_by("client"):
            await asyncio.sleep(3600)

    first = asyncio.create_task(request())
    await asyncio.sleep(0)
    unanswered.lost("client")
    second = asyncio.create_task(request())
    with pytest.raises(ConnectionLost):
        await first
    unanswered.lost("client")
    async with asyncio.timeout(60):
        with pytest.raises(ConnectionLost):
            await second


async def test_a_deadline_of_the_request_is_not_a_lost_connection() -> None:
    unanswered = UnansweredRequests()
    with pytest.raises(TimeoutError) as raised:
        async with unanswered.sent_by("client"), asyncio.timeout(0):
            await asyncio.sleep(3600)
    assert not isinstance(raised.value, ConnectionLost)


async def test_a_cancelled_future_in_work_ends_the_work_only() -> None:
    """A connection whose loss was waited for by a cancelled task raises so when it is closed."""

    async def work() -> None:
        lost = asyncio.get_running_loop().create_future()
        lost.cancel()
        await lost

    await run_apart(work(), deadline=60)


async def test_work_that_runs_apart_raises_and_has_a_deadline() -> None:
    async def fails() -> None:
        raise OSError("broken pipe")

    with pytest.raises(OSError, match="broken pipe"):
        await run_apart(fails(), deadline=60)
    with pytest.raises(TimeoutError):
        await run_apart(asyncio.sleep(3600), deadline=0)


async def test_a_cancelled_caller_ends_the_work_that_runs_apart() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    caller = asyncio.create_task(run_apart(work(), deadline=3600))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    async with asyncio.timeout(60):
        await ended.wait()
