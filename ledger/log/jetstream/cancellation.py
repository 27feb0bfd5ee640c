"""Cancellation that is not lost.

`asyncio.wait_for`, which nats-py uses for every request, forgets in Python 3.11 that its task was
cancelled when the answer has arrived at the same moment. A task that goes on for ever then goes on
for ever, and whoever cancelled it and waits for its end, a service that stops, waits as long.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def reraise_cancelled(waiting: Awaitable[T]) -> T:
    """Wait, and raise CancelledError when the task was cancelled meanwhile, whoever forgot it."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    before = task.cancelling()
    try:
        return await waiting
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError
