"""Memory log: the log in memory, for tests and simulation, with every failure a real log can show.

A `MemoryStore` survives its clients; any number of `MemoryLog` clients share one, as replicas share
a stream, and a client may be dropped at any await as a killed process would be. No code here reads
a clock or draws a random number: a `Faults` hook decides the fault of each call.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from enum import Enum
from typing import Final, Protocol

import msgspec

from ledger.log.log_port import (
    MESSAGE_BYTES,
    Ambiguous,
    Durability,
    Extent,
    Full,
    LogEntry,
    Lost,
    PositionTaken,
    Snapshot,
    Unreachable,
)

BATCH_ENTRIES_MAX: Final = 256
"""Entries in one batch."""

SNAPSHOTS_KEPT: Final = 2
"""Snapshots that stay when a new one is saved."""

DENIALS_KEPT: Final = 10_000
"""Denials that stay; older ones expire."""


class CallFate(Enum):
    """The outcome of a call. Calls other than `append` have only the first or the second."""

    DELIVERED = "delivered"
    UNREACHABLE = "unreachable"
    FULL = "full"
    REQUEST_LOST = "request lost: not stored, and the caller gets no answer"
    ACK_LOST = "acknowledgement lost: stored, and the caller gets no answer"
    LATE = "stored later if the position is still free, and the caller gets no answer"


class Fault(msgspec.Struct, frozen=True):
    """A call's fate and its delays, in seconds: before it arrives, after, and until it is late."""

    fate: CallFate = CallFate.DELIVERED
    before: float = 0.0
    after: float = 0.0
    late: float = 0.0


NO_FAULT: Final = Fault()


class Faults(Protocol):
    """Decides the fault of each call."""

    def strike(self, call: str) -> Fault:
        """Return the fault of the next call, named as in `log_port.Log` (`append`, `extent`, …).

        `follow` and `read` call it once for every batch.
        """
        ...


class NoFaults:
    """Every call succeeds at once."""

    def strike(self, call: str) -> Fault:
        """Return no fault."""
        return NO_FAULT


class MemoryStore:
    """The data that survives all clients: records, snapshots, denials.

    `size_max` is in bytes, 0 for none. `trouble` is the report of its server about its disk. Tests
    change `records` directly to lose, cut or forge history.
    """

    def __init__(self, *, size_max: int = 0, exists: bool = False) -> None:
        """Make an empty store; `exists` when its log was created before."""
        self.exists = exists
        self.size_max = size_max
        self.trouble = ""
        self.records: list[bytes] = []
        self.snapshots: list[Snapshot] = []
        self.denials: list[LogEntry] = []
        self.denials_last = 0
        self._changed = asyncio.Event()

    @property
    def size(self) -> int:
        """Bytes of all records, with the overhead that a server counts."""
        return sum(map(len, self.records)) + MESSAGE_BYTES * len(self.records)

    def store(self, payload: bytes, expected: int) -> int:
        """Store a record at the position after `expected`. Raises PositionTaken, Full."""
        if expected != len(self.records):
            raise PositionTaken(f"position {expected + 1}: the log ends at {len(self.records)}")
        if self.size_max and self.size + len(payload) + MESSAGE_BYTES > self.size_max:
            raise Full(f"the log has {self.size} of {self.size_max} bytes: raise its maximum")
        self.records.append(payload)
        self.wake()
        return len(self.records)

    def store_late(self, payload: bytes, expected: int) -> None:
        """Store a record that arrived late, if its position is still free."""
        if expected == len(self.records) and self.exists:
            self.store(payload, expected)

    def keep_denial(self, payload: bytes) -> None:
        """Keep a denial; the oldest goes when there are too many."""
        self.denials_last += 1
        self.denials.append(LogEntry(self.denials_last, payload))
        del self.denials[:-DENIALS_KEPT]
        self.wake()

    def wake(self) -> None:
        """Wake all clients that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def news(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()


class MemoryLog:
    """One client of a store; implements `log_port.Log`."""

    def __init__(self, store: MemoryStore, faults: Faults | None = None) -> None:
        """Use a store, with faults decided by the hook."""
        self._store = store
        self._faults: Faults = faults or NoFaults()
        self._closed = False

    async def open(self, *, create: bool) -> None:
        """Find the log, or create it if that is allowed. Raises Lost."""
        self._must_be_open()
        if not self._store.exists and not create:
            raise Lost("the log does not exist, but records were seen before: restore it")
        self._store.exists = True

    async def append(self, payload: bytes, expected: int) -> int:
        """Store a record; see `log_port.Log`."""
        self._must_be_open()
        fault = self._faults.strike("append")
        await _pass(fault.before)
        position = self._deliver(payload, expected, fault)
        await _pass(fault.after)
        if fault.fate is CallFate.ACK_LOST:
            raise Ambiguous(f"no acknowledgement of position {expected + 1}")
        return position

    async def write_trouble(self) -> str:
        """Return the report that was set in the store."""
        return self._store.trouble

    async def extent(self) -> Extent:
        """Return the extent of the log."""
        await self._arrive("extent")
        self._must_exist()
        store = self._store
        return Extent(1 if store.records else 0, len(store.records), store.size, store.size_max)

    async def get(self, position: int) -> bytes | None:
        """Return one record."""
        await self._arrive("get")
        self._must_exist()
        if not 1 <= position <= len(self._store.records):
            return None
        return self._store.records[position - 1]

    async def read(self, first: int, last: int) -> AsyncIterator[Sequence[LogEntry]]:
        """Yield records `first` … `last`."""
        position = max(first, 1)
        while position <= last:
            await self._arrive("read")
            batch = self._records(position, min(last, position + BATCH_ENTRIES_MAX - 1))
            if not batch:
                raise Lost(f"the log ends at {len(self._store.records)}, {position} is missing")
            position = batch[-1].position + 1
            yield batch

    async def follow(self, first: int) -> AsyncIterator[Sequence[LogEntry]]:
        """Yield records from `first` on, until `close`."""
        position = max(first, 1)
        while not self._closed:
            batch = self._records(position, position + BATCH_ENTRIES_MAX - 1)
            if not batch:
                await self._store.news()
                continue
            if await self._delayed("follow"):
                position = batch[-1].position + 1
                yield batch

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot and drop all but the newest two."""
        await self._arrive("save_snapshot")
        self._store.snapshots.append(snapshot)
        del self._store.snapshots[:-SNAPSHOTS_KEPT]

    async def load_snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """Yield the snapshots, newest first."""
        await self._arrive("load_snapshots")
        for snapshot in sorted(self._store.snapshots, key=lambda kept: kept.position, reverse=True):
            yield snapshot

    async def publish_denial(self, payload: bytes) -> None:
        """Keep a denial."""
        await self._arrive("publish_denial")
        self._store.keep_denial(payload)

    async def follow_denials(self, first: int) -> AsyncIterator[Sequence[LogEntry]]:
        """Yield denials from `first` on, until `close`."""
        position = first if first <= self._store.denials_last + 1 else 1
        while not self._closed:
            batch = [entry for entry in self._store.denials if entry.position >= position]
            if not batch:
                await self._store.news()
                continue
            if await self._delayed("follow_denials"):
                position = batch[-1].position + 1
                yield batch

    async def durability(self) -> Durability:
        """Return that memory keeps no record."""
        await self._arrive("durability")
        return Durability("memory", None, 1, ("the log is in memory: use it for tests only",))

    async def close(self) -> None:
        """End this client's followers; the store stays."""
        self._closed = True
        self._store.wake()

    def _deliver(self, payload: bytes, expected: int, fault: Fault) -> int:
        """Store an append, or not, by its fate."""
        if fault.fate is CallFate.UNREACHABLE:
            raise Unreachable("the log cannot be reached")
        if fault.fate is CallFate.FULL:
            raise Full("the log has reached its maximum size: raise it")
        if fault.fate is CallFate.LATE:
            loop = asyncio.get_running_loop()
            loop.call_later(fault.late, self._store.store_late, payload, expected)
        if fault.fate in (CallFate.LATE, CallFate.REQUEST_LOST):
            raise Ambiguous(f"no acknowledgement of position {expected + 1}")
        self._must_exist()
        return self._store.store(payload, expected)

    def _records(self, first: int, last: int) -> list[LogEntry]:
        """Return the stored records of a range, fewer when the log ends before it. Raises Lost."""
        self._must_exist()
        stored = self._store.records
        if len(stored) < first - 1:
            raise Lost(f"the log ends at {len(stored)}, but position {first - 1} was seen")
        return [
            LogEntry(position, stored[position - 1])
            for position in range(first, min(last, len(stored)) + 1)
        ]

    async def _arrive(self, call: str) -> None:
        """Apply the fault of a call other than `append`. Raises Unreachable."""
        self._must_be_open()
        fault = self._faults.strike(call)
        await _pass(fault.before)
        if fault.fate is not CallFate.DELIVERED:
            raise Unreachable(f"{call}: the log cannot be reached")
        await _pass(fault.after)

    async def _delayed(self, call: str) -> bool:
        """Apply the fault of a follower; False when it has to read again."""
        fault = self._faults.strike(call)
        # Yields even without a delay, because a permanent fault would block other tasks.
        await asyncio.sleep(fault.before + fault.after)
        return fault.fate is CallFate.DELIVERED and not self._closed

    def _must_be_open(self) -> None:
        if self._closed:
            raise Unreachable("this client of the log was closed")

    def _must_exist(self) -> None:
        if not self._store.exists:
            raise Lost("the log does not exist: restore it from a backup")


async def _pass(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)
