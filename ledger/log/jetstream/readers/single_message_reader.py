"""Single message reader: reads a stream in order, for readers that may make no consumers.

A consumer delivers to a subject that its maker chooses, and goes on after its maker has gone. So
the agents of nodes may make no consumers, and request each record instead. They receive append
notices, and request the extent from time to time because notices can be lost.

Promises: as those of `ledger.log.jetstream.readers.push_consumer`. At most `WINDOW` requests are
under way at once.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from nats.aio.msg import Msg

from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.missing_records import RETRY_SECONDS, Stream, confirmed_extent, must_exist
from ledger.log.log_port import LogEntry, Unreachable

WINDOW: Final = 32
"""Requests under way at once; an answer may be a third larger than the largest record."""

LOOK_SECONDS: Final = 2.0
"""How often the extent is requested without notices."""

_DIGITS_MAX: Final = 20


async def read(stream: Stream, first: int, last: int) -> AsyncGenerator[list[LogEntry], None]:
    """Yield entries `first` … `last` of a contiguous stream. Raises Lost, Unreachable."""
    position = max(first, 1)
    await confirmed_extent(stream, position, last)
    while position <= last:
        batch = await _window(stream, position, last)
        if not batch:
            await must_exist(stream, position)
            raise Unreachable(f"stream {stream.name} does not have position {position} yet")
        position = batch[-1].position + 1
        yield batch


async def follow(stream: Stream, first: int, news: str) -> AsyncGenerator[list[LogEntry], None]:
    """Yield entries of a contiguous stream from `first` on, until the connection closes.

    `news` is the subject on which replicas publish the end of the log. Raises Lost.
    """
    position = max(first, 1)
    async with contextlib.AsyncExitStack() as stack:
        ends: _Ends | None = None
        while not stream.connection.closed:
            try:
                if ends is None:
                    ends = await stack.enter_async_context(_listening(stream, news))
                last = await ends.after(position - 1)
                while position <= last and (batch := await _window(stream, position, last)):
                    position = batch[-1].position + 1
                    yield batch
            except Unreachable:
                await asyncio.sleep(RETRY_SECONDS)


async def _window(stream: Stream, first: int, last: int) -> list[LogEntry]:
    """Return the next entries, up to the first missing one. Raises Lost, Unreachable."""
    wanted = range(first, min(last, first + WINDOW - 1) + 1)
    entries = await asyncio.gather(*(_get(stream, position) for position in wanted))
    batch: list[LogEntry] = []
    for entry in entries:
        if entry is None:
            break
        batch.append(entry)
    return batch


async def _get(stream: Stream, position: int) -> LogEntry | None:
    stored = await jetstream_api.message(stream.connection, stream.name, {"seq": position})
    if stored is None:
        return None
    if stored.seq != position:
        raise Unreachable(f"stream {stream.name} answered {stored.seq} when asked for {position}")
    return LogEntry(position, stored.data)


class _Ends:
    """The end of the stream, by its extent and by append notices."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._noticed = 0
        self._woken = asyncio.Event()

    async def after(self, seen: int) -> int:
        """Return the end of the stream, as soon as it may be after the position `seen`.

        Notices are hints: without a new one, and every `LOOK_SECONDS`, the extent is requested,
        which also finds a log that ends before `seen`. Raises Lost, Unreachable.
        """
        while True:
            self._woken.clear()
            if self._noticed > seen:
                noticed, self._noticed = self._noticed, 0
                return noticed
            extent = await confirmed_extent(self._stream, seen + 1, seen)
            if extent.last > seen:
                return extent.last
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._woken.wait()
            if self._stream.connection.closed:
                raise Unreachable("the connection to NATS was closed by this process")

    async def receive(self, message: Msg) -> None:
        """Receive a notice: a position in digits."""
        text = message.data[:_DIGITS_MAX]
        if text.isdigit():
            self._noticed = max(self._noticed, int(text))
            self._woken.set()

    def wake(self) -> None:
        """Request the extent at once, because the connection was made again, or closed."""
        self._noticed = 0
        self._woken.set()


@contextlib.asynccontextmanager
async def _listening(stream: Stream, news: str) -> AsyncGenerator[_Ends, None]:
    """Receive notices for the time of the block. Raises Unreachable."""
    ends = _Ends(stream)
    await stream.connection.subscribe(news, ends.receive)
    forget = stream.connection.on_change(ends.wake)
    try:
        yield ends
    finally:
        forget()
        await stream.connection.unsubscribe(news)
