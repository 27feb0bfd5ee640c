"""Cancellation of requests: reliably, and when the connection that they were sent on is lost.

`asyncio.wait_for`, which nats-py uses for every request, swallows in Python 3.11 a cancellation
when the answer arrives at the same moment. An endless task then never ends, and a stopping service
that cancelled it waits for ever.

nats-py lets a request wait for its whole deadline when its connection is lost, though the answer
was lost with it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


async def reraise_cancelled(waiting: Awaitable[T]) -> T:
    """Wait, and raise CancelledError when the task was cancelled meanwhile."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    before = task.cancelling()
    try:
        return await waiting
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


async def run_apart(work: Coroutine[None, None, None], deadline: float) -> None:
    """Run `work` for at most so many seconds, and take a CancelledError in it for its end.

    An await of a future that another task had cancelled raises CancelledError, too, and this would
    end the caller. Raises what `work` raises, and TimeoutError.
    """
    task = asyncio.create_task(work)
    try:
        ended, _ = await asyncio.wait({task}, timeout=deadline)
    finally:
        task.cancel()
    if not ended:
        raise TimeoutError
    if not task.cancelled():
        task.result()


async def first_answer(ask: Callable[[], Coroutine[None, None, T]], pause: float | None) -> T:
    """Ask, and again after each pause in seconds; return or raise as the first that ends."""
    asked: set[asyncio.Task[T]] = set()
    try:
        while True:
            asked.add(asyncio.create_task(ask()))
            ended, _ = await asyncio.wait(asked, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if ended:
                return ended.pop().result()
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


class ConnectionLost(TimeoutError):
    """The connection was lost before the answer came, and the answer with it."""

    def __init__(self) -> None:
        super().__init__("the connection was lost")


class UnansweredRequests:
    """The requests that wait for an answer, by the client that sent them."""

    def __init__(self) -> None:
        """Begin without a request."""
        self._limits: dict[Hashable, set[asyncio.Timeout]] = {}

    @asynccontextmanager
    async def sent_by(self, client: Hashable) -> AsyncIterator[None]:
        """Wait for an answer in the body. Raises ConnectionLost."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                limits = self._limits.setdefault(client, set())
                limits.add(limit)
                try:
                    yield
                finally:
                    limits.discard(limit)
                    # After a loss, these may be the requests of the next connection.
                    if not limits and self._limits.get(client) is limits:
                        del self._limits[client]
        except TimeoutError as error:
            if limit.expired():
                raise ConnectionLost from error
            raise

    def lost(self, client: Hashable) -> None:
        """End the requests of a client, because its connection was lost."""
        now = asyncio.get_running_loop().time()
        for limit in self._limits.pop(client, ()):
            limit.reschedule(now)
