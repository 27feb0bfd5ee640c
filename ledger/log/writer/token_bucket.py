"""Token buckets: each key may add a burst of bytes at once, and a steady rate after that.

The bucket of a key fills at the steady rate. Some facts have to be recorded in any case, so more
may be taken than the bucket holds; then it holds less than nothing.
"""


class TokenBuckets:
    """The buckets of all keys. Times are those of one clock that only goes on, in seconds."""

    def __init__(self, burst: int, rate: int, *, keys_max: int) -> None:
        """Let each key add `burst` bytes at once and `rate` bytes per second.

        At most `keys_max` buckets are kept: with more, those that lack least count as full.
        """
        self._burst, self._rate, self._keys_max = burst, rate, keys_max
        self._missing: dict[str, tuple[float, float]] = {}
        """By key: the bytes that its bucket lacked, and when."""

    def __len__(self) -> int:
        return len(self._missing)

    def take(self, key: str, size: int, now: float) -> None:
        """Take bytes out of the bucket of a key."""
        self._missing[key] = self._lacking(key, now) + size, now
        if len(self._missing) > self._keys_max:
            self._prune(now)

    def wait(self, key: str, now: float) -> float:
        """Return after how many seconds a key may add bytes again; 0 when it may now."""
        return max(0.0, (self._lacking(key, now) - self._burst) / self._rate)

    def _lacking(self, key: str, now: float) -> float:
        missing, since = self._missing.get(key, (0.0, now))
        return max(0.0, missing - (now - since) * self._rate)

    def _prune(self, now: float) -> None:
        """Keep three quarters of the buckets at most, those that lack most."""
        lacking = {key: self._lacking(key, now) for key in self._missing}
        kept = sorted(lacking, key=lambda key: lacking[key])[-self._keys_max * 3 // 4 :]
        self._missing = {key: (lacking[key], now) for key in kept if lacking[key]}
