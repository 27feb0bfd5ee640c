"""News: telling all replicas that a record was written, so that they look for it at once.

It is a hint and no more. One that is lost costs a moment, because every idle writer looks at the
log from time to time; one that is wrong costs a look. What is true stands in the log.
"""

import asyncio
import contextlib
from typing import Final

from nats.aio.msg import Msg

from ledger.log.jetstream.connection import NatsConnection
from ledger.log.jetstream.streams import StreamNames
from ledger.log.log_port import LogError
from ledger.log.records import Record
from ledger.log.writer.writer import Writer

LOOK_SECONDS: Final = 0.02
"""Shortest time between two looks: many records that come in a moment are fetched together."""

_DIGITS_MAX: Final = 20


class AppendNotifier:
    """Tells of what a writer stores, and has it look for what others have stored."""

    def __init__(self, connection: NatsConnection, names: StreamNames, *, writer: Writer) -> None:
        """Prepare; `start` it, and `run` it while the writer runs."""
        self._connection, self._subject = connection, names.news_subject
        self._writer = writer
        self._stored, self._heard = asyncio.Event(), asyncio.Event()
        self._newest = 0

    async def start(self) -> None:
        """Begin to listen, until the connection is closed. Raises Unreachable."""
        await self._connection.subscribe(self._subject, self._hear)
        # Not before: whoever cannot be reached is asked again, and a writer tells each time.
        self._writer.subscribe(self._take)

    async def run(self) -> None:
        """Tell and look until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell())
            tasks.create_task(self._look())

    async def _tell(self) -> None:
        while True:
            await self._stored.wait()
            self._stored.clear()
            position = str(self._writer.state.position).encode()
            with contextlib.suppress(LogError):
                await self._connection.publish(self._subject, position)

    async def _look(self) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            if self._newest > self._writer.state.position:
                self._writer.request_refresh()
                await asyncio.sleep(LOOK_SECONDS)

    def _take(self, record: Record) -> None:
        if record.writer == self._writer.name:
            self._stored.set()

    async def _hear(self, message: Msg) -> None:
        text = message.data[:_DIGITS_MAX]
        if text.isdigit():
            self._newest = int(text)
            self._heard.set()
