"""Expiring counter: how often each user was refused or not recognized in the last hour.

A key expires an hour after its last count. If the counter is full, a new key replaces the key with
the lowest count, so the memory is bounded.
"""

import asyncio
from typing import Final, Generic, TypeVar

KEYS_MAX: Final = 16
"""Maximum number of keys."""

KEPT_SECONDS: Final = 3_600.0
"""Seconds after which a key expires that is not counted again."""

K = TypeVar("K")


class ExpiringCounter(Generic[K]):
    """Counts of at most `KEYS_MAX` keys, which expire `KEPT_SECONDS` after their last count."""

    def __init__(self) -> None:
        self._seen: dict[K, tuple[int, float]] = {}

    def count(self, key: K) -> int:
        """Count a key, and return its count."""
        self._forget()
        times = self._seen.pop(key, (0, 0.0))[0] + 1
        if len(self._seen) >= KEYS_MAX:
            del self._seen[min(self._seen, key=lambda candidate: self._seen[candidate])]
        self._seen[key] = times, asyncio.get_running_loop().time()
        return times

    def __len__(self) -> int:
        """Return the number of keys."""
        self._forget()
        return len(self._seen)

    def counts(self) -> list[tuple[K, int]]:
        """Return every key with its count, the last counted key last."""
        self._forget()
        return [(key, count) for key, (count, _) in self._seen.items()]

    def _forget(self) -> None:
        if not self._seen:
            return
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        for key in [key for key, (_, last) in self._seen.items() if last < oldest]:
            del self._seen[key]
