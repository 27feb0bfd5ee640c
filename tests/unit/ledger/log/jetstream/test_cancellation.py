"""A cancellation arrives, also when what was waited for arrives at the same moment."""

import asyncio
from collections.abc import Awaitable

import pytest

from ledger.log.jetstream.cancellation import reraise_cancelled


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
