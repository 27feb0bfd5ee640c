"""Shares: how much of the log one namespace may append.

Each namespace has a bucket of bytes. What is stored about it is taken out, whichever replica wrote
it, and the bucket fills again at a steady rate. While it is empty, nothing new is reserved for the
namespace. What exists and what ends is recorded all the same, and is taken out too, so a bucket may
hold less than nothing. A writer that has just opened a log begins with full buckets.
"""

from collections.abc import Iterable
from typing import Final

from ledger.log.records import Item, encode_item

NAMESPACES_MAX: Final = 10_000
"""Buckets that are kept; with more, those that lack least are forgotten, as if they were full."""


class Shares:
    """The buckets of all namespaces; times are those of the event loop, in seconds."""

    def __init__(self, burst: int, rate: int, namespaces_max: int = NAMESPACES_MAX) -> None:
        """Let each namespace append `burst` bytes at once and `rate` bytes per second."""
        self._burst, self._rate, self._namespaces_max = burst, rate, namespaces_max
        self._missing: dict[str, tuple[float, float]] = {}
        """By namespace: the bytes that its bucket lacked, and when."""

    def __len__(self) -> int:
        return len(self._missing)

    def note(self, items: Iterable[Item], now: float) -> None:
        """Take what was stored out of the buckets of the namespaces that it is about."""
        for item in items:
            namespace = getattr(item.event, "namespace", "")
            if namespace:
                missing = self._lacking(namespace, now) + len(encode_item(item))
                self._missing[namespace] = missing, now
        if len(self._missing) > self._namespaces_max:
            self._prune(now)

    def wait(self, namespace: str, now: float) -> float:
        """Return after how many seconds a namespace may append again; 0 when it may now."""
        over = self._lacking(namespace, now) - self._burst
        return max(0.0, over / self._rate)

    def _lacking(self, namespace: str, now: float) -> float:
        missing, since = self._missing.get(namespace, (0.0, now))
        return max(0.0, missing - (now - since) * self._rate)

    def _prune(self, now: float) -> None:
        """Keep three quarters of the buckets at most, those that lack most."""
        lacking = {name: self._lacking(name, now) for name in self._missing}
        kept = sorted(lacking, key=lambda name: lacking[name])[-self._namespaces_max * 3 // 4 :]
        self._missing = {name: (lacking[name], now) for name in kept if lacking[name]}
