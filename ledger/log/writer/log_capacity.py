"""Log capacity: what may still be appended, by the log's size and the namespace's share of it.

The log never drops a record, so it can fill up. The last tenth of its maximum size is a reserve:
new reservations and placements are refused there, while commits, releases and limits are recorded.
So what is charged can still end when the log is nearly full.

Each namespace has a bucket of bytes. Every record takes the bytes about a namespace out of its
bucket, whichever replica wrote the record, and the bucket fills again at a steady rate. While the
bucket is empty, nothing new is reserved for the namespace. Existing and ended objects are recorded
all the same, and take bytes too, so a bucket may hold less than nothing. A writer that has just
opened a log begins with full buckets.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ledger.core.model.commands import AnyCommand, MakeRoom, Place, Reserve, Resize
from ledger.core.model.denials import Denial
from ledger.log import system_denials
from ledger.log.log_port import MESSAGE_BYTES, Extent
from ledger.log.records import Item, encode_item

RESERVE_SHARE: Final = 10
"""One part in so many of the maximum size is the reserve."""

FULL_BYTES: Final = 64 * 1024
"""A log with less room than this, or than a hundredth of its maximum, counts as full."""

_PROMISES: Final = (Reserve, Resize, MakeRoom)

NAMESPACES_MAX: Final = 10_000
"""Buckets that are kept; with more, the fullest buckets are forgotten and count as full."""


class TokenBuckets:
    """Buckets of bytes by key: each key may add a burst at once, and a steady rate after that.

    More may be taken than a bucket holds, because some facts have to be recorded in any case. Times
    are those of one clock that only goes on, in seconds.
    """

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
        missing = self._missing
        before = missing.get(key)
        lacking = 0.0 if before is None else before[0] - (now - before[1]) * self._rate
        missing[key] = (lacking + size if lacking > 0 else size), now
        if len(missing) > self._keys_max:
            self._prune(now)

    def wait(self, key: str, now: float) -> float:
        """Return after how many seconds a key may add bytes again; 0 when it may now."""
        before = self._missing.get(key)
        if before is None:
            return 0.0
        over = before[0] - (now - before[1]) * self._rate - self._burst
        return over / self._rate if over > 0 else 0.0

    def _lacking(self, key: str, now: float) -> float:
        missing, since = self._missing.get(key, (0.0, now))
        return max(0.0, missing - (now - since) * self._rate)

    def _prune(self, now: float) -> None:
        """Keep three quarters of the buckets at most, those that lack most."""
        lacking = {key: self._lacking(key, now) for key in self._missing}
        kept = sorted(lacking, key=lambda key: lacking[key])[-self._keys_max * 3 // 4 :]
        self._missing = {key: (lacking[key], now) for key in kept if lacking[key]}


class LogCapacity:
    """The room of a log, by its extent as last read and the records stored since.

    `room` is the size in bytes of the largest record that can be stored, None without a maximum.
    """

    def __init__(self, burst: int, rate: int, *, namespaces_max: int = NAMESPACES_MAX) -> None:
        """Let each namespace append `burst` bytes at once and `rate` bytes per second."""
        self.extent = Extent(1, 0, 0, 0)
        self.room: int | None = None
        self._shares = TokenBuckets(burst, rate, keys_max=namespaces_max)

    def refusal(self, command: AnyCommand, size: int, now: float) -> Denial | None:
        """Refuse a new promise of a namespace over its share, or in the reserve of the log.

        `size` is that of the record before the command, in bytes; `now` is the loop's time.
        """
        if not is_new_promise(command):
            return None
        in_reserve = self.reaches_reserve(size)
        if isinstance(command, Reserve):
            seconds = self.wait(command.namespace, now)
            if seconds > 0:
                return system_denials.over_share(command.namespace, seconds)
        return system_denials.in_reserve(self.shown()) if in_reserve else None

    def wait(self, namespace: str, now: float) -> float:
        """Return after how many seconds a namespace may reserve again; 0 when it may now."""
        return self._shares.wait(namespace, now)

    def note(self, extent: Extent) -> None:
        """Take over the extent that was read from the log."""
        self.extent = extent
        size_max = extent.size_max
        self.room = max(0, size_max - extent.size - 2 * MESSAGE_BYTES) if size_max else None

    def add(self, position: int, size: int, namespace_bytes: Mapping[str, int], now: float) -> None:
        """Count an own record of so many bytes that was stored at a position.

        `namespace_bytes` are those of its items about each namespace; `now` is the loop's time.
        """
        old = self.extent
        self.note(Extent(old.first, position, size + old.size + MESSAGE_BYTES, old.size_max))
        for namespace, taken in namespace_bytes.items():
            if namespace:
                self._shares.take(namespace, taken, now)

    def take_shares(self, items: Iterable[Item], now: float) -> None:
        """Take the items of another writer's record out of the buckets of their namespaces."""
        for item in items:
            namespace = getattr(item.event, "namespace", "")
            if namespace:
                self._shares.take(namespace, len(encode_item(item)), now)

    def shrink(self, size: int) -> bool:
        """Conclude that there is no room for a record of so many bytes; False without a maximum."""
        old = self.extent
        if old.size_max:
            taken = max(old.size, old.size_max - size - 2 * MESSAGE_BYTES + 1)
            self.note(Extent(old.first, old.last, taken, old.size_max))
        return bool(old.size_max)

    @property
    def is_full(self) -> bool:
        """Whether so little room is left that no record can be relied on to fit."""
        room = self.room
        return room is not None and room < min(FULL_BYTES, self.extent.size_max // 100 + 1)

    def reaches_reserve(self, size: int) -> bool:
        """Return whether so many bytes more would reach into the reserve."""
        extent = self.extent
        free = extent.size_max - extent.size - size
        return bool(extent.size_max) and free < extent.size_max // RESERVE_SHARE

    @property
    def namespaces(self) -> int:
        """How many namespaces have a bucket that is not full."""
        return len(self._shares)

    def shown(self) -> str:
        """Return the size of the log and its maximum, as text."""
        extent = self.extent
        return f"{extent.size} of its maximum of {extent.size_max} bytes"

    def fullness(self) -> str:
        """Return that the log is full, in a sentence with the remedy."""
        return f"the log has {self.shown()} and no room for more: raise log_bytes_max"


def is_new_promise(command: AnyCommand) -> bool:
    """Return whether a command promises something new; other commands record existing facts."""
    if isinstance(command, Place):
        return not command.seen
    # A tuple, because a union would be made again for each command.
    return isinstance(command, _PROMISES)
