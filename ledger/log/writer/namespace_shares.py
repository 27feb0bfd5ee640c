"""Shares: how much of the log one namespace may append.

Each namespace has a bucket of bytes. What is stored about it is taken out, whichever replica wrote
it, and the bucket fills again at a steady rate. While it is empty, nothing new is reserved for the
namespace. What exists and what ends is recorded all the same, and is taken out too, so a bucket may
hold less than nothing. A writer that has just opened a log begins with full buckets.
"""

from collections.abc import Iterable
from typing import Final

from ledger.log.records import Item, encode_item
from ledger.log.writer.token_bucket import TokenBuckets

NAMESPACES_MAX: Final = 10_000
"""Buckets that are kept; with more, those that lack least are forgotten, as if they were full."""


class NamespaceShares:
    """The buckets of all namespaces; times are those of the event loop, in seconds."""

    def __init__(self, burst: int, rate: int, *, namespaces_max: int = NAMESPACES_MAX) -> None:
        """Let each namespace append `burst` bytes at once and `rate` bytes per second."""
        self._rates = TokenBuckets(burst, rate, keys_max=namespaces_max)

    def __len__(self) -> int:
        return len(self._rates)

    def note(self, items: Iterable[Item], now: float) -> None:
        """Take what was stored out of the buckets of the namespaces that it is about."""
        for item in items:
            namespace = getattr(item.event, "namespace", "")
            if namespace:
                self._rates.take(namespace, len(encode_item(item)), now)

    def wait(self, namespace: str, now: float) -> float:
        """Return after how many seconds a namespace may append again; 0 when it may now."""
        return self._rates.wait(namespace, now)
