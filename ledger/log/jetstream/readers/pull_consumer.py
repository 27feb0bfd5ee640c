"""Pull consumer: follows a log and reads short pieces of its end, by one consumer that is kept.

A push consumer delivers each record as it is stored, and wakes its reader for each. A pull consumer
delivers what has come since the last request. It lives on between reads, while a consumer for each
read costs the log server more than the records, and lives for seconds after it.

Promises of `follow`: as those of `push_consumer`, which reads the entries that a pull consumer does
not deliver, and finds lost ones. A read alone promises nothing: it returns fewer entries, or none.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ledger.log.jetstream.cancellation import reraise_cancelled
from ledger.log.jetstream.missing_records import RETRY_SECONDS, Stream, confirmed_extent
from ledger.log.jetstream.nats_errors import ApiError
from ledger.log.jetstream.readers import push_consumer
from ledger.log.log_port import LogEntry, Unreachable

ENTRIES_MAX: Final = 512
"""Entries of one request, so that a fold yields to other tasks in between."""

BYTES_MAX: Final = 8 * 1024**2
"""Bytes of entries of one request, which the client holds."""

READ_SECONDS: Final = 1.0
"""Longest wait for stored entries. The writer decides nothing meanwhile."""

FOLLOW_SECONDS: Final = 3.0
"""Longest wait for the next entry, until the end of the stream is compared."""

KEPT_SECONDS: Final = 10
"""The server removes a consumer without a request for so long."""

USED_SECONDS: Final = KEPT_SECONDS / 2
"""A consumer without a request for so long is made again, because it may be removed by now."""

AVOIDED_SECONDS: Final = 60.0
"""How long no consumer is tried after one that did not answer, as without the right to pull."""

_LATE_SECONDS: Final = 1.0
"""How much later than announced the server may end a request."""

_ENDED: Final = ("404", "408", "409")
"""Ends of a request after which the consumer goes on: nothing more is stored, the time is over, or
its bytes are full. A 409 for another reason, such as a removed consumer, ends the next request."""

_NANOSECONDS: Final = 1_000_000_000
_json: Final = msgspec.json.Encoder()
_log: Final = structlog.get_logger("ledger.log")


async def follow(stream: Stream, first: int) -> AsyncGenerator[list[LogEntry], None]:
    """Yield the entries of a contiguous stream from `first` on, until the connection closes.

    Entries that come while the caller works or waits are yielded together. Raises Lost.
    """
    position = max(first, 1)
    reader = PullReader(stream)
    try:
        while not stream.connection.closed:
            if entries := await reader.next(position):
                position = entries[-1].position + 1
                yield entries
                continue
            try:
                last = (await confirmed_extent(stream, position, position - 1)).last
                async for batch in _stored(reader, stream, position, last):
                    position = batch[-1].position + 1
                    yield batch
                await reader.pause()
            except Unreachable:
                await asyncio.sleep(RETRY_SECONDS)
    finally:
        await reader.forget()


async def _stored(
    reader: "PullReader", stream: Stream, position: int, last: int
) -> AsyncGenerator[list[LogEntry], None]:
    """Yield stored entries that a request did not deliver. Raises Lost, Unreachable."""
    if position > last:
        return
    entries = await reader.read(position, last)
    if not entries:
        if not reader.is_avoided:
            _log.warning("consumer_behind", stream=stream.name, position=position, end=last)
        async for batch in push_consumer.read(stream, position, last):
            yield batch
        return
    yield entries  # they were stored in the very moment in which the request ended


class PullReader:
    """Reads a stream by a consumer that is kept between requests, of which one runs at a time."""

    def __init__(self, stream: Stream) -> None:
        """Read from a contiguous stream."""
        self._stream = stream
        self._consumer: _KeptConsumer | None = None
        self._is_reading = False
        self._avoided_until = 0.0

    @property
    def is_avoided(self) -> bool:
        """Return whether no consumer is tried, because one did not answer a moment ago."""
        return _now() < self._avoided_until

    async def read(self, first: int, last: int) -> list[LogEntry]:
        """Return stored entries from `first` on, up to `last` at most, or none."""
        request = {"batch": min(last - first + 1, ENTRIES_MAX)}
        return await self._fetch(first, request, READ_SECONDS)

    async def next(self, first: int) -> list[LogEntry]:
        """Wait for entries from `first` on; return those that are stored then, or none."""
        request = {"batch": ENTRIES_MAX, "no_wait": True}
        return await self._fetch(first, request, FOLLOW_SECONDS)

    async def pause(self) -> None:
        """Wait before a consumer is made again; do not wait for one that answers."""
        if self._consumer is None:
            await asyncio.sleep(RETRY_SECONDS)

    async def forget(self) -> None:
        """Give the consumer up; the next request makes another one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.detach()

    async def _fetch(self, first: int, request: dict[str, int], seconds: float) -> list[LogEntry]:
        if self._is_reading or self.is_avoided:
            return []
        self._is_reading, is_useful = True, False
        try:
            consumer = await self._consumer_at(first)
            entries = await consumer.take(request, seconds)
            # Without stored entries it is on a server that is behind; a new one may be elsewhere.
            is_useful = not consumer.is_broken and (bool(entries) or "no_wait" in request)
            return entries
        except TimeoutError:
            _log.warning("pull_unanswered", stream=self._stream.name, avoided=AVOIDED_SECONDS)
            self._avoided_until = _now() + AVOIDED_SECONDS
        except (Unreachable, ApiError, nats.errors.Error) as error:
            _log.debug("pull_failed", stream=self._stream.name, error=str(error))
        finally:
            self._is_reading = False
            if not is_useful:
                await self.forget()
        return []

    async def _consumer_at(self, first: int) -> "_KeptConsumer":
        """Return the kept consumer, or a new one where that is elsewhere. Raises as `attach`."""
        consumer = self._consumer
        if consumer is None or not consumer.continues_at(first):
            await self.forget()
            consumer = self._consumer = _KeptConsumer(self._stream, first)
            await consumer.attach()
        return consumer


class _KeptConsumer:
    """One ephemeral pull consumer. The next entry that it delivers is at `_position`.

    `is_broken` is set when it delivered something else, or does not answer.
    """

    def __init__(self, stream: Stream, first: int) -> None:
        self.is_broken = False
        self._stream, self._connection = stream, stream.connection
        self._position, self._delivered = first, 1
        self._entries: list[LogEntry] = []
        self._wanted = 0
        self._used_at = _now()
        self._ended = asyncio.Event()
        self._inbox = self._name = ""
        self._subscription: Subscription | None = None
        self._unwatch = self._connection.on_change(self._give_up)

    def continues_at(self, position: int) -> bool:
        """Return whether it delivers this position next, as far as is known."""
        is_kept = _now() - self._used_at < USED_SECONDS
        return is_kept and position == self._position and not self.is_broken

    async def attach(self) -> None:
        """Subscribe and make the consumer. Raises Unreachable, ApiError, nats.errors.Error."""
        client = await self._connection.client()
        self._inbox = client.new_inbox()
        self._name = self._inbox.rsplit(".", 1)[-1]
        self._subscription = await client.subscribe(
            self._inbox, cb=self._receive, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        config = {
            "name": self._name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._position,
            "ack_policy": "none",
            "max_deliver": 1,
            "inactive_threshold": KEPT_SECONDS * _NANOSECONDS,
            "num_replicas": 1,
            "mem_storage": True,
        }
        await self._connection.api(
            f"CONSUMER.CREATE.{self._stream.name}.{self._name}",
            {"stream_name": self._stream.name, "config": config, "action": "create"},
        )

    async def take(self, request: dict[str, int], seconds: float) -> list[LogEntry]:
        """Return the entries that a request delivers, which the server ends after `seconds`.

        Raises Unreachable, and TimeoutError where the server does not end it either.
        """
        self._wanted = request["batch"]
        self._ended.clear()
        bounds = {"max_bytes": BYTES_MAX, "expires": int(seconds * _NANOSECONDS)}
        try:
            await self._connection.publish(
                f"{self._connection.api_prefix}.CONSUMER.MSG.NEXT.{self._stream.name}.{self._name}",
                _json.encode(request | bounds),
                self._inbox,
            )
            async with asyncio.timeout(seconds + _LATE_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            if not self._entries:
                raise
        finally:
            # Entries that come after the end of a request, as after a cancellation, belong to none.
            entries, self._entries, self._wanted = self._entries, [], 0
            self._used_at = _now()
        return entries

    async def detach(self) -> None:
        """Unsubscribe. The server removes the consumer after `KEPT_SECONDS`."""
        self._unwatch()
        self._give_up()
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self._connection.closed:
            try:
                await reraise_cancelled(subscription.unsubscribe())
            except nats.errors.Error:
                return

    async def _receive(self, message: Msg) -> None:
        if self.is_broken:
            return
        status = message.headers.get("Status") if message.headers else None
        if status is not None:
            # Entries of an ended request that came with it are valid.
            self.is_broken = status not in _ENDED
            self._ended.set()
            return
        position, delivered = push_consumer.sequences(message.reply)
        expected = (self._position, self._delivered)
        if (position, delivered) != expected or len(self._entries) >= self._wanted:
            self._give_up()
            return
        self._position, self._delivered = position + 1, delivered + 1
        self._entries.append(LogEntry(position, message.data))
        if len(self._entries) == self._wanted:
            self._ended.set()

    def _give_up(self) -> None:
        """End the request, because the server may have dropped the consumer with the connection."""
        self.is_broken = True
        self._ended.set()


def _now() -> float:
    return asyncio.get_running_loop().time()
