"""Waiting for what must come true: with a deadline, and with the last value in the failure."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

Seen = TypeVar("Seen")

PAUSE_SECONDS: Final = 0.1


async def eventually(
    look: Callable[[], Awaitable[Seen]],
    wanted: Callable[[Seen], bool],
    *,
    within: float,
    what: str,
    pause: float = PAUSE_SECONDS,
) -> Seen:
    """Look again and again until the value is as wanted, and return it.

    Fails after `within` seconds, with the condition and the last value in the message.
    """
    deadline = time.monotonic() + within
    while True:
        seen = await look()
        if wanted(seen):
            return seen
        if time.monotonic() >= deadline:
            raise AssertionError(f"after {within:g} s still not: {what}; seen last: {seen!r}")
        await asyncio.sleep(pause)
