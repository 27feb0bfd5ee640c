"""Reliable cancellation around `asyncio.wait_for`, which nats-py uses for every request.

In Python 3.11 it swallows a cancellation when the answer arrives at the same moment. An endless
task then never ends, and a stopping service that cancelled it waits for ever.
"""

import asyncio
from collections.abc import Awaitable
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
