"""Periodic work, and long loops that yield to the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

STEPS: Final = 32
"""Steps of a loop between two yields: well below 2 ms."""


async def run_periodically(seconds: float, action: Callable[[], Awaitable[None]]) -> None:
    """Run an action until cancelled, so many seconds after its last run has ended."""
    while True:
        await asyncio.sleep(seconds)
        await action()


class CooperativeYield:
    """Yields to the event loop after every `STEPS` steps of a long loop.

    Steps are counted and not timed, because a simulation must yield at the same steps every time.
    """

    def __init__(self) -> None:
        self._steps = 0

    async def step(self) -> None:
        """Count a step, and yield to the event loop if it is time."""
        self._steps += 1
        if not self._steps % STEPS:
            await asyncio.sleep(0)
