"""Pausing: longer after each failure, up to a bound, for what is tried again and again."""

import asyncio


class Pausing:
    """Returns when to try again after failures. Times are seconds on the loop's own clock."""

    def __init__(self, seconds: float, seconds_max: float) -> None:
        """Pause `seconds` after the first failure, twice that after the next one, and so on."""
        self._first = seconds
        self._seconds_max = seconds_max
        self._seconds = seconds
        self._until = 0.0

    def is_over(self) -> bool:
        """Return whether it may be tried again."""
        return asyncio.get_running_loop().time() >= self._until

    def failed(self) -> None:
        """Pause from now on."""
        self._until = asyncio.get_running_loop().time() + self._seconds
        self._seconds = min(2 * self._seconds, self._seconds_max)

    def worked(self) -> None:
        """Begin with the short pause again."""
        self._seconds = self._first
