"""JetStream log: the log on NATS JetStream.

An append is a request on the log's subject with its expected position; the server stores it only
there. Positions are the stream's own sequence numbers. Fresh data is read from the stream's leader,
never from a replica that may be behind.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec
import structlog

from ledger.log.jetstream import (
    jetstream_api,
    jetstream_domain,
    power_cut_safety,
    server_monitoring,
    stream_configuration,
)
from ledger.log.jetstream.cancellation import ConnectionLost
from ledger.log.jetstream.missing_records import Stream
from ledger.log.jetstream.nats_connection import Access, NatsConnection
from ledger.log.jetstream.nats_errors import ApiError, ApiProblem
from ledger.log.jetstream.readers import pull_consumer, push_consumer, single_message_reader
from ledger.log.jetstream.snapshot_store import SnapshotStore
from ledger.log.jetstream.stream_configuration import (
    HEADERS_BYTES_MAX,
    SNAPSHOTS_SHARE,
    StreamConfig,
    StreamNames,
)
from ledger.log.log_port import (
    Ambiguous,
    Durability,
    Extent,
    Full,
    LogEntry,
    LogError,
    Lost,
    PositionTaken,
    RecordTooLarge,
    Snapshot,
    Unwritable,
)
from ledger.log.records import RECORD_BYTES_MAX

ACKNOWLEDGED_SECONDS: Final = 2.0
"""Wait for the acknowledgement of an append before its position is read: one that was sent to a
leader which is gone gets none. One that is only slow is found there once it is stored."""

_WRONG_LAST_SEQUENCE: Final = (10071, 10164)
"""The second is the code of a replicated stream while another append is in progress."""

_STREAM_MISMATCH: Final = 10060
_STORE_FAILED: Final = 10077
_NO_ROOM: Final = (10002, 10047)

_log: Final = structlog.get_logger("ledger.log")


class JetStreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to use a shard's log; sizes in bytes, times in seconds.

    Without `consumers` the log is read by single requests, for users that may make no consumer;
    denials cannot be followed then.
    """

    access: Access
    shard: str = "main"
    replicas: int = 1
    max_bytes: int = 16 * 1024**3
    denials_max_bytes: int = 256 * 1024**2
    denials_days: int = 30
    deadline: float = 5.0
    monitor_urls: tuple[str, ...] = ()
    domain: str | None = None
    production: bool = False
    consumers: bool = True


class JetStreamLog:
    """`log_port.Log` on one shard's streams. Make one with `connect`, then `open` it."""

    def __init__(self, connection: NatsConnection, settings: JetStreamSettings) -> None:
        """Use a connection; `close` closes it."""
        self.connection = connection
        self.settings = settings
        self.names = StreamNames(settings.shard)
        replicas = settings.replicas
        self._log = Stream(connection, self.names.log, contiguous=True, replicas=replicas)
        self._tail = pull_consumer.PullReader(self._log)
        self._denials = Stream(connection, self.names.denials, contiguous=False)
        self._snapshots = SnapshotStore(connection, self.names, consumers=settings.consumers)

    @classmethod
    async def connect(cls, settings: JetStreamSettings) -> "JetStreamLog":
        """Connect to the servers. Raises Unreachable naming them and the reason."""
        connection = await NatsConnection.connect(
            settings.access, deadline=settings.deadline, domain=settings.domain
        )
        return cls(connection, settings)

    async def open(self, *, create: bool) -> None:
        """Find or create the streams and compare their configuration with the needed one.

        The log itself is created only with `create`: a log that existed before and is
        missing now was lost. Snapshots and denials are disposable and created when missing.
        Raises Lost, ConfigurationDrift, domains.Captured, Unreachable.
        """
        await jetstream_domain.must_be_clear(self.connection, self.names)
        log, *disposable = self._wanted()
        await jetstream_api.ensure(self.connection, log, create=create)
        for stream in disposable:
            await jetstream_api.ensure(self.connection, stream, create=True)

    async def adjust(self) -> None:
        """Set the streams' sizes and the retention of denials to the settings; compress nothing.

        For the service only, because a command may run without its settings. A server that refuses,
        for want of disk space, changes nothing. Raises Lost, Unreachable.
        """
        for wanted in self._wanted():
            try:
                changes = await jetstream_api.adjust(self.connection, wanted)
            except ApiError as error:
                _log.warning("stream_not_adjusted", stream=wanted.name, reason=str(error))
            else:
                if changes:
                    _log.info("stream_adjusted", stream=wanted.name, **changes)

    async def append(self, payload: bytes, expected: int) -> int:
        """Store a record; see `log_port.Log`."""
        client = await self.connection.client()
        # A server closes the connection of a client that sends more than its max_payload.
        most = min(RECORD_BYTES_MAX, client.max_payload) - HEADERS_BYTES_MAX
        if len(payload) > most:
            raise RecordTooLarge(len(payload), most)
        headers = {
            "Nats-Expected-Last-Sequence": str(expected),
            "Nats-Expected-Stream": self.names.log,
        }
        deadline = min(self.connection.deadline, ACKNOWLEDGED_SECONDS)
        try:
            ack = await jetstream_api.store(
                self.connection, self.names.log_subject, payload, headers, deadline=deadline
            )
        except TimeoutError as error:
            raise Ambiguous(f"position {expected + 1}: {_silence(error, deadline)}") from error
        except msgspec.MsgspecError as error:
            raise Ambiguous(f"position {expected + 1}: the answer is unreadable") from error
        if ack.error is not None:
            raise _refusal(ack.error, expected + 1)
        if self.connection.domain not in (None, ack.domain):
            raise Lost(
                f"position {expected + 1} was stored in domain {ack.domain or '(none)'} instead of"
                f" {self.connection.domain}: remove the stream {ack.stream} from that domain"
            )
        if ack.seq != expected + 1 or ack.stream != self.names.log:
            raise Lost(
                f"position {expected + 1} was stored as {ack.seq} of {ack.stream}:"
                f" the stream is not {self.names.log} as it was"
            )
        return ack.seq

    async def write_trouble(self) -> str:
        """Return why most servers cannot write the log; see `server_monitoring.write_trouble`."""
        return await server_monitoring.write_trouble(self.settings.monitor_urls, self.names.log)

    async def extent(self) -> Extent:
        """Return the log's extent, from the leader."""
        return await jetstream_api.extent(self.connection, self.names.log)

    async def get(self, position: int) -> bytes | None:
        """Return one record, from the leader."""
        if position < 1:
            return None
        if self.connection.domain is not None and self.settings.consumers:
            return await self._delivered(position)
        stored = await jetstream_api.message(self.connection, self.names.log, {"seq": position})
        return stored.data if stored is not None else None

    async def _delivered(self, position: int) -> bytes | None:
        """Return one record by a delivery without JSON.

        The API wraps it in JSON, a third larger. Between two servers such a message may be above
        `max_payload`, and a leaf node closes its connection over it.
        """
        if position > (await self.extent()).last:
            return None
        async with aclosing(push_consumer.read(self._log, position, position)) as batches:
            return (await anext(batches))[0].payload

    def read(self, first: int, last: int) -> AsyncIterator[Sequence[LogEntry]]:
        """Yield records `first` … `last`."""
        if not self.settings.consumers:
            return single_message_reader.read(self._log, first, last)
        return self._read(first, last)

    async def _read(self, first: int, last: int) -> AsyncGenerator[Sequence[LogEntry], None]:
        """Yield records by the kept consumer if they are few, and otherwise by one of their own."""
        if last - first < pull_consumer.ENTRIES_MAX:
            while first <= last and (entries := await self._tail.read(first, last)):
                first = entries[-1].position + 1
                yield entries
        async with aclosing(push_consumer.read(self._log, first, last)) as batches:
            async for batch in batches:
                yield batch

    def follow(self, first: int) -> AsyncIterator[Sequence[LogEntry]]:
        """Yield records from `first` on, without end."""
        if not self.settings.consumers:
            return single_message_reader.follow(self._log, first, self.names.news_subject)
        return pull_consumer.follow(self._log, first)

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Store a snapshot; see `SnapshotStore.save`."""
        await self._snapshots.save(snapshot)

    def load_snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """Yield the complete snapshots, newest first."""
        return self._snapshots.load()

    async def publish_denial(self, payload: bytes) -> None:
        """Send a denial without waiting for its acknowledgement."""
        await self.connection.publish(self.names.denials_subject, payload)

    def follow_denials(self, first: int) -> AsyncIterator[Sequence[LogEntry]]:
        """Yield denials from `first` on; a younger stream of denials is read from its start."""
        return push_consumer.follow(self._denials, first)

    async def durability(self) -> Durability:
        """Return the durability of acknowledged records, by the servers' configuration."""
        configuration = await jetstream_api.configuration(self.connection, self.names.log)
        return await power_cut_safety.inspect(
            await jetstream_api.version(self.connection, self.names.log),
            configuration,
            self.settings.monitor_urls,
            production=self.settings.production,
            deadline=self.settings.deadline,
        )

    async def close(self) -> None:
        """Close the connection; followers end."""
        await self.connection.close()

    def _wanted(self) -> tuple[StreamConfig, StreamConfig, StreamConfig]:
        """Describe the streams, the log first."""
        settings, names = self.settings, self.names
        replicas, days = settings.replicas, settings.denials_days
        return (
            stream_configuration.log_stream(names, replicas, settings.max_bytes),
            stream_configuration.snapshot_stream(
                names, replicas, settings.max_bytes // SNAPSHOTS_SHARE
            ),
            stream_configuration.denials_stream(names, replicas, settings.denials_max_bytes, days),
        )


def _silence(error: TimeoutError, deadline: float) -> str:
    lost = isinstance(error, ConnectionLost)
    return str(error) if lost else f"no acknowledgement in {deadline:g} s"


def _refusal(problem: ApiProblem, position: int) -> LogError:
    """Turn the server's answer to an append into the error that the writer handles."""
    code = problem.err_code
    text = f"position {position}: {problem.description} (JetStream error {code})"
    if code in _WRONG_LAST_SEQUENCE:
        return PositionTaken(text)
    if code in (_STREAM_MISMATCH, jetstream_api.STREAM_NOT_FOUND):
        return Lost(text)
    # The same code is used for any failure of the store; only these two mean that nothing was
    # stored.
    if code == _STORE_FAILED and "exceeded" in problem.description:
        return Full(f"{text}: raise the log's max_bytes")
    if code in _NO_ROOM:
        return Unwritable(f"{text}: the servers have no room for the account")
    return Ambiguous(text)
