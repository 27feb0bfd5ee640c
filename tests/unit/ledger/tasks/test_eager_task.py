"""Eager tasks run at once, and otherwise behave like the tasks of asyncio."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ledger.tasks.eager_task import EagerTask

DEADLINE_SECONDS = 10.0

_named: contextvars.ContextVar[str] = contextvars.ContextVar("_named", default="nothing")

Ended = tuple[Any, BaseException | None]


class Started:
    """A coroutine that runs in an eager task, from outside of all tasks."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self.task: EagerTask[Any] = EagerTask(
            coroutine, lambda _, result, error: self.ended.set_result((result, error))
        )
        loop.call_soon(self._start)
        self.ended_at_once = False

    def _start(self) -> None:
        self.task.start()
        self.ended_at_once = self.ended.done()

    async def end(self) -> Ended:
        """Return the result and the error."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self.ended


async def returned() -> int:
    return 7


async def refused() -> None:
    raise ValueError("refused")


@pytest.mark.parametrize(
    ("made", "result", "error"), [(returned, 7, type(None)), (refused, None, ValueError)]
)
async def test_coroutine_without_a_wait_ends_at_its_start(
    made: Callable[[], Coroutine[Any, Any, Any]], result: object, error: type
) -> None:
    started = Started(made())
    assert (await started.end())[0] == result
    assert isinstance((await started.end())[1], error)
    assert started.ended_at_once


async def test_coroutine_continues_after_futures_and_bare_yields() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def waits() -> int:
        await asyncio.sleep(0)
        first = await future
        await asyncio.sleep(0.001)
        return first + await asyncio.create_task(returned())

    started = Started(waits())
    await asyncio.sleep(0.01)
    assert not started.ended_at_once
    future.set_result(1)
    assert await started.end() == (8, None)


async def test_error_of_a_future_is_raised_in_the_coroutine() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def waits() -> str:
        try:
            await future
        except ValueError as error:
            return str(error)
        return ""

    started = Started(waits())
    future.set_exception(ValueError("from outside"))
    assert await started.end() == ("from outside", None)


async def test_coroutine_may_use_what_needs_a_task() -> None:
    seen: list[object] = []

    async def uses() -> str:
        seen.append(asyncio.current_task())
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            seen.append(asyncio.current_task())
        async with asyncio.TaskGroup() as group:
            child = group.create_task(returned())
        await asyncio.wait_for(asyncio.to_thread(lambda: None), DEADLINE_SECONDS)
        return f"{child.result()} {task_of(started).cancelling()}"

    started = Started(uses())
    assert await started.end() == ("7 0", None)
    assert seen == [started.task, started.task]


def task_of(started: Started) -> EagerTask[Any]:
    return started.task


async def test_context_variables_stay_in_the_coroutine() -> None:
    async def sets() -> str:
        token = _named.set("mine")
        await asyncio.sleep(0)
        name = _named.get()
        _named.reset(token)
        _named.set("left behind")
        return name

    seen: list[str] = []
    loop = asyncio.get_running_loop()

    def start() -> None:
        task: EagerTask[str] = EagerTask(sets(), lambda *_: seen.append(_named.get()))
        task.start()
        seen.append(_named.get())

    started = Started(sets())
    assert await started.end() == ("mine", None)
    loop.call_soon(start)
    await asyncio.sleep(0.01)
    assert seen == ["nothing", "nothing"]


@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_cancelled_coroutine_ends_with_cancelled_error(steps: int) -> None:
    cleaned = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    started = Started(waits())
    for _ in range(steps):
        await asyncio.sleep(0)
    started.task.cancel()
    assert isinstance((await started.end())[1], asyncio.CancelledError)
    assert cleaned == ([True] if steps else [])


async def test_coroutine_that_cancels_itself_ends_at_its_next_wait() -> None:
    async def waits() -> None:
        task_of(started).cancel()
        await asyncio.Event().wait()

    async def late() -> None:
        await asyncio.sleep(0)
        await waits()

    started = Started(late())
    assert isinstance((await started.end())[1], asyncio.CancelledError)


async def test_start_inside_a_task_runs_in_the_next_turn() -> None:
    ended: list[object] = []
    task: EagerTask[int] = EagerTask(returned(), lambda _, result, error: ended.append(result))
    task.start()
    assert ended == []
    await asyncio.sleep(0)
    assert ended == [7]


async def test_awaiting_another_object_than_a_future_is_an_error() -> None:
    class Odd:
        def __await__(self) -> Any:
            yield "odd"

    async def waits() -> None:
        await Odd()

    result, error = await Started(waits()).end()
    assert result is None
    assert "'odd' instead of a future" in str(error)
