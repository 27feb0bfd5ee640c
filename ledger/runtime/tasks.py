"""Turns: work that lets the event loop have its own, and work that is done again and again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

STRIDE: Final = 32
"""Objects that are looked at before the event loop gets its turn: well below 2 ms."""


async def every(seconds: float, action: Callable[[], Awaitable[None]]) -> None:
    """Do something again and again, so many seconds after it was done."""
    while True:
        await asyncio.sleep(seconds)
        await action()


class Stride:
    """Lets the event loop have its turn every so many steps.

    Steps are counted and not timed, so that a simulation takes the same turns every time.
    """

    def __init__(self) -> None:
        self._steps = 0

    async def step(self) -> None:
        """Count one object; now and then, let others run."""
        self._steps += 1
        if not self._steps % STRIDE:
            await asyncio.sleep(0)
