"""Push consumer: reads a stream in order, with flow control, and is made again when it breaks.

Promises: entries come in the order of their positions, each once; a contiguous stream that skips
a position raises `Lost`. The server's flow control bounds the client's memory: the next window is
requested only when the last one was taken.

The client library's own ordered consumer is not used: it does not support JetStream domains, and
when it cannot be made again after a restart of the server it stays silent for ever.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.cancellation import reraise_cancelled
from ledger.log.jetstream.missing_records import RETRY_SECONDS, Stream, confirmed_extent, must_exist
from ledger.log.jetstream.nats_errors import ApiError
from ledger.log.log_port import LogEntry, Lost, Unreachable

BATCH_ENTRIES_MAX: Final = 512
"""Entries in one batch, so that a fold yields to other tasks in between."""

HEARTBEAT_SECONDS: Final = 1
"""How often the server sends a heartbeat without entries."""

SILENCE_SECONDS_MAX: Final = 3.5
"""A consumer without a message for so long is made again."""

COMPARE_SECONDS: Final = 5.0
"""How often an idle consumer of a contiguous stream is compared with the end of the stream.

A consumer is on one replica of the stream. A replica whose files cannot be written, or that does
not catch up, sends heartbeats without end and no entries.
"""

_log: Final = structlog.get_logger("ledger.log")

_NANOSECONDS: Final = 1_000_000_000
_STALLED: Final = "Nats-Consumer-Stalled"


async def follow(stream: Stream, first: int) -> AsyncGenerator[list[LogEntry], None]:
    """Yield entries from `first` on without end, through reconnects, until the connection closes.

    Raises Lost.
    """
    position = first
    while not stream.connection.closed:
        try:
            async with aclosing(_attached(stream, position, position - 1)) as batches:
                async for batch in batches:
                    position = batch[-1].position + 1
                    yield batch
        except Unreachable:
            await asyncio.sleep(RETRY_SECONDS)


async def read(stream: Stream, first: int, last: int) -> AsyncGenerator[list[LogEntry], None]:
    """Yield entries `first` … `last`. Raises Lost, and Unreachable when nothing comes in time.

    A stream that is not contiguous must have a message at `last`.
    """
    position = first
    patience = stream.connection.deadline + SILENCE_SECONDS_MAX
    clock = asyncio.get_running_loop().time
    give_up = clock() + patience
    while position <= last:
        if stream.connection.closed:
            raise Unreachable("the connection to NATS was closed by this process")
        async with aclosing(_attached(stream, position, last)) as batches:
            while position <= last:
                try:
                    # Consumers that are made again and again must not prolong the wait.
                    batch = await reraise_cancelled(
                        asyncio.wait_for(anext(batches, None), give_up - clock())
                    )
                except TimeoutError as error:
                    await must_exist(stream, position)
                    raise Unreachable(
                        f"stream {stream.name} sent nothing from {position} for {patience:g} s"
                    ) from error
                if batch is None:
                    break
                wanted = [entry for entry in batch if entry.position <= last]
                position = batch[-1].position + 1
                if wanted:
                    yield wanted
                give_up = clock() + patience


async def _attached(stream: Stream, first: int, seen: int) -> AsyncGenerator[list[LogEntry], None]:
    """Yield the entries of one consumer from `first` on until it breaks.

    Raises Unreachable, and Lost when the stream does not reach the position `seen`.
    """
    extent = await confirmed_extent(stream, first, seen)
    if not stream.contiguous and first > extent.last + 1:
        # A younger stream of the same name: all its entries are new.
        first = 1
    consumer = _Consumer(stream, first, end=seen)
    forget = stream.connection.on_change(consumer.distrust)
    try:
        await consumer.attach()
        while True:
            batch = await consumer.take()
            if not batch:
                return
            yield batch
    finally:
        forget()
        await consumer.detach()


class _Consumer:
    """One ephemeral push consumer, its delivered entries, and whether they are consistent.

    The stream has had the position `end`.
    """

    def __init__(self, stream: Stream, first: int, *, end: int = 0) -> None:
        self._stream = stream
        self._position = max(first, 1)
        self._end = end
        self._compare_at = asyncio.get_running_loop().time() + COMPARE_SECONDS
        self._delivered = 1
        self._entries: list[LogEntry] = []
        self._lost: Lost | None = None
        self._broken = False
        self._window = ""
        self._news = asyncio.Event()
        self._subscription: Subscription | None = None

    async def attach(self) -> None:
        """Subscribe and make the consumer. Raises Unreachable, Lost."""
        client = await self._stream.connection.client()
        inbox = client.new_inbox()
        try:
            self._subscription = await client.subscribe(
                inbox, cb=self._receive, pending_msgs_limit=-1, pending_bytes_limit=-1
            )
            await self._stream.connection.api(
                f"CONSUMER.CREATE.{self._stream.name}.{inbox.rsplit('.', 1)[-1]}",
                self._request(inbox),
            )
        except ApiError as error:
            raise Unreachable(str(error)) from error
        except nats.errors.Error as error:
            raise Unreachable(f"stream {self._stream.name}: {error}") from error

    async def take(self) -> list[LogEntry]:
        """Wait for entries; an empty list when the consumer has to be made again.

        Raises Lost, Unreachable.
        """
        while not self._entries:
            if self._lost is not None:
                raise self._lost
            if self._broken:
                return []
            self._news.clear()
            try:
                await reraise_cancelled(asyncio.wait_for(self._news.wait(), SILENCE_SECONDS_MAX))
            except TimeoutError:
                return []
            if not self._entries and await self._is_behind():
                return []
        batch = self._entries[:BATCH_ENTRIES_MAX]
        del self._entries[:BATCH_ENTRIES_MAX]
        if self._window and not self._entries:
            await self._open_window()
        return batch

    async def _is_behind(self) -> bool:
        """Return whether an entry is missing that the stream had at the last comparison.

        Raises Lost when the stream's only server lacks it, and Unreachable.
        """
        now = asyncio.get_running_loop().time()
        if not self._stream.contiguous or now < self._compare_at:
            return False
        if self._end >= self._position:
            _log.warning(
                "consumer_behind",
                stream=self._stream.name,
                position=self._position,
                end=self._end,
            )
            await must_exist(self._stream, self._position)
            return True
        self._compare_at = now + COMPARE_SECONDS
        try:
            extent = await jetstream_api.extent(self._stream.connection, self._stream.name)
        except Unreachable:
            return False
        self._end = extent.last
        return False

    async def detach(self) -> None:
        """Unsubscribe; the server drops a consumer without a subscriber."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self._stream.connection.closed:
            try:
                await subscription.unsubscribe()
            except nats.errors.Error:
                return

    def distrust(self) -> None:
        """Give the consumer up, because the server may have dropped it with the connection."""
        self._broken = True
        self._news.set()

    def _request(self, inbox: str) -> dict[str, object]:
        config: dict[str, object] = {
            "name": inbox.rsplit(".", 1)[-1],
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._position,
            "ack_policy": "none",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": HEARTBEAT_SECONDS * _NANOSECONDS,
            "inactive_threshold": 5 * _NANOSECONDS,
            "num_replicas": 1,
            "mem_storage": True,
        }
        if self._stream.subject:
            config["filter_subject"] = self._stream.subject
        return {"stream_name": self._stream.name, "config": config, "action": "create"}

    async def _receive(self, message: Msg) -> None:
        self._news.set()
        headers = message.headers
        if headers and headers.get("Status") == "100":
            await self._control(message.reply or headers.get(_STALLED, ""))
        elif not self._broken:
            position, delivered = sequences(message.reply)
            if self._believable(position, delivered):
                self._entries.append(LogEntry(position, message.data))

    async def _control(self, window: str) -> None:
        if not window:
            return
        self._window = window
        if not self._entries:
            await self._open_window()

    async def _open_window(self) -> None:
        """Acknowledge the window to the server: all its entries were taken."""
        window, self._window = self._window, ""
        try:
            await self._stream.connection.publish(window, b"")
        except Unreachable:
            self._broken = True

    def _believable(self, position: int, delivered: int) -> bool:
        if delivered != self._delivered:
            self._broken = True
            return False
        self._delivered += 1
        if self._stream.contiguous and position != self._position:
            self._lost = Lost(
                f"position {self._position}: the record is missing, stream {self._stream.name}"
                f" goes on with {position}"
            )
            self._broken = True
            return False
        self._position = position + 1
        return True


def sequences(reply: str) -> tuple[int, int]:
    """Return stream and consumer sequence of `$JS.ACK.[domain.account.]stream.consumer.n.s.c…`."""
    tokens = reply.split(".")
    offset = 5 if len(tokens) == 9 else 7
    return int(tokens[offset]), int(tokens[offset + 1])
