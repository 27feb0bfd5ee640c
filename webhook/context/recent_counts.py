"""Recent counts: what happened lately, by key, in bounded memory."""

import asyncio
from typing import Final, Generic, TypeVar

KEYS_MAX: Final = 16
"""Keys that are kept; the rarest makes room."""

KEPT_SECONDS: Final = 3_600.0
"""How long a key is kept after it was last counted."""

K = TypeVar("K")


class RecentCounts(Generic[K]):
    """How often each key was counted; a key is forgotten an hour after it was counted last."""

    def __init__(self) -> None:
        self._seen: dict[K, tuple[int, float]] = {}

    def count(self, key: K) -> int:
        """Count a key and return how often it was counted."""
        self._forget()
        found = self._seen.pop(key, (0, 0.0))[0] + 1
        if len(self._seen) >= KEYS_MAX:
            del self._seen[min(self._seen, key=lambda one: self._seen[one])]
        self._seen[key] = found, asyncio.get_running_loop().time()
        return found

    def __len__(self) -> int:
        """Return how many keys are kept."""
        self._forget()
        return len(self._seen)

    def counts(self) -> list[tuple[K, int]]:
        """Return every key with its count, the latest last."""
        self._forget()
        return [(key, count) for key, (count, _) in self._seen.items()]

    def _forget(self) -> None:
        if not self._seen:
            return
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        for one in [one for one, (_, last) in self._seen.items() if last < oldest]:
            del self._seen[one]
