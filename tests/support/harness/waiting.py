"""Waiting: repeats a check until it succeeds."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Look again and again until a condition holds; fail after so many seconds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.01)
