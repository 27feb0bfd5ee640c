"""Rate limits: token buckets for each of many names, and one for all together."""

from collections.abc import Callable
from typing import Final

import msgspec

NAMES_MAX: Final = 4096
"""Names with a stored rate; the least recently used name is removed first."""


class Rate(msgspec.Struct, frozen=True):
    """At most `burst` at once, and `per_second` in the long run."""

    burst: float
    per_second: float


class Rates:
    """One token bucket for each name."""

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        """Begin with a full bucket for every name."""
        self._rate, self._clock = rate, clock
        self._left: dict[str | bytes, tuple[float, float]] = {}

    def has(self, name: str | bytes) -> bool:
        """Return whether one more is allowed now, without counting it."""
        return self._of(name) >= 1.0

    def take(self, name: str | bytes) -> bool:
        """Count one more, and return whether it is allowed."""
        left = self._of(name)
        self._left.pop(name, None)
        if len(self._left) >= NAMES_MAX:
            del self._left[next(iter(self._left))]
        self._left[name] = (left - 1.0 if left >= 1.0 else left, self._clock())
        return left >= 1.0

    def _of(self, name: str | bytes) -> float:
        left, then = self._left.get(name, (self._rate.burst, self._clock()))
        return min(self._rate.burst, left + (self._clock() - then) * self._rate.per_second)
