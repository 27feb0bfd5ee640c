"""Exponential backoff: after each failure the pause before the next attempt doubles."""

import asyncio
from collections.abc import Awaitable, Callable


class Backoff:
    """Pauses in seconds that double up to a bound.

    `seconds` is the next pause without its jitter. A task that waits for its next attempt awaits
    `wait`. A loop with other work calls `failed`, and skips the attempt until `is_over`.
    """

    def __init__(
        self,
        seconds: float,
        seconds_max: float,
        *,
        jitter: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Begin with a pause of `seconds`.

        With `jitter`, which returns numbers from 0 to 1, a pause is between half and all of that,
        so that many replicas do not try again in step.
        """
        self.seconds = seconds
        self._first, self._seconds_max = seconds, seconds_max
        self._jitter, self._sleep = jitter, sleep
        self._until = 0.0

    def lengthen(self) -> None:
        """Double the next pause."""
        self.seconds = min(2 * self.seconds, self._seconds_max)

    def next_pause(self) -> float:
        """Return the next pause with its jitter, and double the one after it."""
        pause = self._jittered(self.seconds)
        self.lengthen()
        return pause

    def reset(self) -> None:
        """Begin with the first pause again, because an attempt succeeded."""
        self.seconds = self._first

    async def wait(self) -> None:
        """Sleep for the next pause, and double the one after it."""
        await self._sleep(self.next_pause())

    async def wait_shortest(self) -> None:
        """Sleep for the first pause, however often attempts have failed."""
        await self._sleep(self._jittered(self._first))

    def failed(self) -> None:
        """Begin the next pause now, on the clock of the running event loop."""
        self._until = asyncio.get_running_loop().time() + self.next_pause()

    def is_over(self) -> bool:
        """Return whether the pause that `failed` began is over, or none was begun."""
        return asyncio.get_running_loop().time() >= self._until

    def _jittered(self, seconds: float) -> float:
        return seconds if self._jitter is None else seconds * (0.5 + self._jitter() / 2)
