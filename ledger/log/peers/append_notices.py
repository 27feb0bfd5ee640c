"""Append notices: a replica notifies all other replicas of a new record, which they read at once.

Under load a notice covers all records of the last `NOTICE_SECONDS`. The first one after a pause is
sent at once.

A notice is a hint. A lost notice costs a short delay, because every idle writer reads the log from
time to time; a wrong notice costs one read.
"""

import asyncio
import contextlib
from typing import Final

from nats.aio.msg import Msg

from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.log_port import LogError
from ledger.log.records import Record
from ledger.log.writer.writer import Writer

NOTICE_SECONDS: Final = 0.02
"""Shortest time between two notices of a replica: a notice costs about a third of a record's
processor time, and a reader of notices reads less often than this."""

REFRESH_SECONDS_MIN: Final = 0.05
"""Shortest pause after a read: records that arrive within it are read together. Settlement waits
for it where another replica is the preferred writer, and so does an extender for the placements of
other extenders."""

REFRESH_SECONDS_MAX: Final = 0.25
"""Longest pause after a read, and longest wait for its end."""

REFRESH_SHARE: Final = 5
"""A read takes at most this part of the time, one divided by it, unless the pause after it would be
longer than `REFRESH_SECONDS_MAX`. A read costs the log server more than its records do, and the
preferred writer waits for the same cores."""

_DIGITS_MAX: Final = 20


class AppendNotifier:
    """Publishes the end of what a writer stores, and refreshes it when others store some."""

    def __init__(self, connection: NatsConnection, names: StreamNames, *, writer: Writer) -> None:
        """Prepare; `start` it, and `run` it while the writer runs."""
        self._connection, self._subject = connection, names.news_subject
        self._writer = writer
        self._stored, self._received = asyncio.Event(), asyncio.Event()
        self._applied = asyncio.Event()
        self._newest = 0

    async def start(self) -> None:
        """Subscribe until the connection is closed. Raises Unreachable."""
        await self._connection.subscribe(self._subject, self._receive)
        # Only now, because `start` is retried until NATS is reachable, and must subscribe once.
        self._writer.subscribe(self._take)

    async def run(self) -> None:
        """Publish notices and follow those of others until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish())
            tasks.create_task(self._refresh())

    async def _publish(self) -> None:
        while True:
            await self._stored.wait()
            self._stored.clear()
            position = str(self._writer.state.position).encode()
            with contextlib.suppress(LogError):
                await self._connection.publish(self._subject, position)
            await asyncio.sleep(NOTICE_SECONDS)

    async def _refresh(self) -> None:
        while True:
            await self._received.wait()
            self._received.clear()
            if self._newest > self._writer.state.position:
                taken = await self._read(self._newest)
                pause = (REFRESH_SHARE - 1) * taken
                await asyncio.sleep(min(max(pause, REFRESH_SECONDS_MIN), REFRESH_SECONDS_MAX))

    async def _read(self, position: int) -> float:
        """Have the writer read up to a position; return the seconds until it has, if it has soon.

        A log that cannot be read is read again by the writer, or after the next notice.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        self._writer.request_refresh()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_SECONDS_MAX):
                while self._writer.state.position < position:
                    self._applied.clear()
                    await self._applied.wait()
        return loop.time() - begun

    def _take(self, record: Record) -> None:
        self._applied.set()
        if record.writer == self._writer.name:
            self._stored.set()

    async def _receive(self, message: Msg) -> None:
        text = message.data[:_DIGITS_MAX]
        if text.isdigit():
            self._newest = int(text)
            self._received.set()
