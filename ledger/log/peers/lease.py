"""Lease: which replica is preferred to write or to settle, until its lease in NATS expires.

There is one lease to write a shard and, because several clusters may share it, one per cluster to
settle that cluster. Leases keep answers quick and settlement from being done twice; nothing else
depends on them. The expected position of every append is the fence, so two replicas that both
assume ownership are slow for a moment, and never wrong.

A lease is the last message of its subject, taken and renewed only on top of the message that was
seen, and removed by the server when its time to live has passed.
"""

import asyncio
import contextlib
import re
from typing import Final

import msgspec
import structlog

from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.jetstream_api import Stored
from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames, owner_stream, settler_stream
from ledger.log.log_port import LogError, Lost, Unreachable

RELEASE_SECONDS: Final = 1
"""Lifetime of the message that frees the lease; the shortest that NATS has."""

_FREE: Final = Stored(0)
_WRITER: Final = re.compile(r"[A-Za-z0-9_-]+")
_log: Final = structlog.get_logger("ledger.log")


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often the lease is renewed and how long it lasts, in seconds (whole ones, at least 1)."""

    renew_seconds: float = 1.0
    lease_seconds: int = 4


class Lease:
    """One replica's view of a lease, and its own bid for it. Use `start` and `stop`."""

    def __init__(
        self,
        connection: NatsConnection,
        names: StreamNames,
        *,
        writer: str,
        cluster: str = "",
        replicas: int = 1,
        bids: bool = True,
        settings: LeaseSettings | None = None,
    ) -> None:
        """Bid under the name of a writer: letters, digits, `-` and `_`.

        The lease is that to write the shard, or with a cluster that to settle the cluster. Without
        `bids` it is only read.
        """
        if not _WRITER.fullmatch(writer):
            raise ValueError(f"writer id {writer!r} may have letters, digits, '-' and '_' only")
        self.writer = writer
        self._connection = connection
        self._stream = (settler_stream if cluster else owner_stream)(names, replicas)
        self._subject = names.settler_subject(cluster) if cluster else names.owner_subject
        self._bids = bids
        self._settings = settings or LeaseSettings()
        self._owner: str | None = None
        self._until = 0.0
        self._notified: str | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def owner(self) -> str | None:
        """The writer that holds the lease as far as is known, None when it is unknown."""
        return self._owner if asyncio.get_running_loop().time() < self._until else None

    @property
    def is_owner(self) -> bool:
        """Whether this replica holds the lease."""
        return self.owner == self.writer

    async def start(self) -> None:
        """Look at the lease once and keep bidding for it. Raises what opening a stream raises."""
        await jetstream_api.ensure(self._connection, self._stream, create=True)
        await self._look()
        self._task = asyncio.create_task(self._bid(), name="owner-lease")

    async def stop(self) -> None:
        """Stop bidding and give the lease back, best effort."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        with contextlib.suppress(LogError, TimeoutError):
            current = await self._current()
            if current.data == self.writer.encode():
                await self._put(b"", current.seq, RELEASE_SECONDS)
        self._until = 0.0
        self._notify()

    async def _bid(self) -> None:
        while True:
            await asyncio.sleep(self._settings.renew_seconds)
            await self._look()

    async def _look(self) -> None:
        """Read the lease, and take or renew it if it is free or owned by this replica."""
        try:
            await self._settle_or_begin_again()
        except (LogError, TimeoutError) as error:
            # The known owner stays until its lease expires.
            _log.debug("owner_lease_unknown", error=str(error))
        self._notify()

    async def _settle_or_begin_again(self) -> None:
        try:
            await self._settle()
        except Lost:
            # Leases are in memory: all are gone when the last server that had them was restarted.
            await jetstream_api.ensure(self._connection, self._stream, create=True)
            await self._settle()

    async def _settle(self) -> None:
        asked = asyncio.get_running_loop().time()
        current = await self._current()
        holder = current.data.decode(errors="replace")
        if not holder and not self._bids:
            self._until = 0.0
            return
        if holder in ("", self.writer):
            if not await self._put(self.writer.encode(), current.seq, self._settings.lease_seconds):
                return
            holder = self.writer
        self._owner, self._until = holder, asked + self._settings.lease_seconds

    async def _current(self) -> Stored:
        """Return the lease's last message; no data when it is free."""
        return await _last(self._connection, self._stream.name, self._subject)

    async def _put(self, data: bytes, expected: int, seconds: int) -> bool:
        """Write on top of the message that was read; False when another replica was faster."""
        headers = {
            "Nats-Expected-Last-Subject-Sequence": str(expected),
            "Nats-TTL": f"{seconds}s",
        }
        try:
            ack = await jetstream_api.store(self._connection, self._subject, data, headers)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"{self._subject}: unreadable answer") from error
        return ack.error is None

    def _notify(self) -> None:
        owner = self.owner
        if owner == self._notified:
            return
        self._notified = owner
        _log.info("owner_changed", lease=self._subject, owner=owner, writer=self.writer)


async def owner_of(connection: NatsConnection, names: StreamNames) -> str:
    """Return the preferred writer, "" if there is none. Raises Unreachable."""
    try:
        current = await _last(connection, names.owner, names.owner_subject)
    except Lost:
        return ""
    return current.data.decode(errors="replace")


async def _last(connection: NatsConnection, stream: str, subject: str) -> Stored:
    wanted: dict[str, object] = {"last_by_subj": subject}
    return await jetstream_api.message(connection, stream, wanted) or _FREE
