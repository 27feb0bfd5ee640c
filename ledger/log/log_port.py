"""Log port: the interface of a log for the writer, the followers and the audit.

A log is one append-only sequence of opaque payloads. Positions are 1, 2, 3 … without gaps;
position 0 is "before the first". An append names the last position it was decided at and is
refused when the log has moved on. That refusal, not a lock, keeps every account within its limits
with any number of writers.

Beside the log, a store keeps snapshots and denials. Losing them loses
no record: a start takes longer, and earlier denials cannot be explained.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Final, Protocol

import msgspec

MESSAGE_BYTES: Final = 128
"""Bytes that a log counts for a record beside its payload: this many, and less than twice as"
" many."""


class LogError(Exception):
    """The log refused or failed."""


class PositionTaken(LogError):
    """Another writer took this position first; refresh and decide again."""


class Ambiguous(LogError):
    """The append may or may not have been stored; read the position to find out."""


class Full(LogError):
    """The log has reached its maximum size; nothing more is stored until it is raised."""


class RecordTooLarge(LogError):
    """A record is larger than the log takes; `most` is the largest size, in bytes."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(f"a record of {size} bytes is too large, the log takes {most}")
        self.most = most


class Unwritable(LogError):
    """The log stores nothing, whether or not it can be read; the message names the cause."""


class Unreachable(LogError):
    """The log cannot be reached; nothing was stored by this call."""


class Lost(LogError):
    """The log is not the one that was seen before: records are missing, changed or renumbered."""


class StreamMissing(Lost):
    """The server reports that a stream does not exist."""


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """One stored payload at its position."""

    position: int
    payload: bytes


class Extent(msgspec.Struct, frozen=True):
    """The first and last position and the size of the log, by the server that orders appends.

    `first` and `last` are positions (last 0: empty), `size` and `size_max` bytes (0: no maximum).
    """

    first: int
    last: int
    size: int
    size_max: int


class Snapshot(msgspec.Struct, frozen=True):
    """An encoded state at a position. The payload carries its own hash and schema version."""

    position: int
    payload: bytes


class Durability(msgspec.Struct, frozen=True):
    """The durability of acknowledged records. `problems` is empty when they survive a power cut.

    Each problem is one sentence with the missing condition and the remedy.
    """

    server_version: str
    sync_always: bool | None
    replicas: int
    problems: tuple[str, ...]


class Log(Protocol):
    """One shard's log with its snapshots and denials.

    Every call takes its deadline in seconds from the adapter's settings and raises `Unreachable`
    when it passes. `append` has a shorter one of its own and raises `Ambiguous` then.
    """

    async def append(self, payload: bytes, expected: int) -> int:
        """Store the payload at `expected + 1` and return that position once it is durable.

        Raises PositionTaken, Ambiguous, Full, RecordTooLarge, Unwritable, Unreachable, Lost.
        """
        ...

    async def write_trouble(self) -> str:
        """Return why servers report that they cannot write, empty when they do not; never raises.

        A server whose disk is full answers no append, so its other reports are read.
        """
        ...

    async def extent(self) -> Extent:
        """Return the log's extent; at least as new as every append acknowledged before the call.

        Raises Unreachable, Lost.
        """
        ...

    async def get(self, position: int) -> bytes | None:
        """Return the payload at a position, None when there is none; as fresh as `extent`."""
        ...

    def read(self, first: int, last: int) -> AsyncIterator[Sequence[LogEntry]]:
        """Yield entries `first` … `last` in order, in batches. Raises Lost on a gap."""
        ...

    def follow(self, first: int) -> AsyncIterator[Sequence[LogEntry]]:
        """Yield entries from `first` on, in order, in batches, without end, surviving reconnects.

        Raises Lost on a gap; ends only by cancellation or `close`.
        """
        ...

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Store a snapshot, whole or not at all; only the newest two stay."""
        ...

    def load_snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """Yield the complete snapshots of readable schemas, newest first, each read when needed."""
        ...

    async def publish_denial(self, payload: bytes) -> None:
        """Keep a denial for a while, best effort: raises Unreachable, retries nothing."""
        ...

    def follow_denials(self, first: int) -> AsyncIterator[Sequence[LogEntry]]:
        """Yield denials from position `first` on; old ones expire, so positions may have gaps."""
        ...

    async def durability(self) -> Durability:
        """Return the durability of acknowledged records, by the servers' configuration."""
        ...

    async def close(self) -> None:
        """Close connections and followers; the stored log stays."""
        ...
