"""Hints: what replicas tell one another in passing, and nobody relies on.

A hint is a few bytes that mean something to those who give them, and are stale after seconds. It is
given at most once: one that is lost, that comes late, or that nobody understands costs a try where
it would have saved one. What is true stands in the log.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
from nats.aio.msg import Msg

from ledger.log.jetstream.connection import NatsConnection
from ledger.log.jetstream.streams import StreamNames
from ledger.log.log_port import LogError

HINTS_MAX: Final = 256
"""Hints that wait to be told, together in one message; one more, and the oldest is forgotten."""

HINT_BYTES_MAX: Final = 2_048
"""Longest hint; a longer one is not told."""

TELL_SECONDS: Final = 0.002
"""Shortest time between two messages: what is said in a moment travels together."""


class _Told(msgspec.Struct, frozen=True, array_like=True):
    by: str
    hints: list[bytes]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Told)


class Hints:
    """Tells hints and hears those of others, while it runs."""

    def __init__(self) -> None:
        """Prepare; hints that are told before `start` are kept as far as there is room."""
        self._waiting: deque[bytes] = deque(maxlen=HINTS_MAX)
        self._told = asyncio.Event()
        self._heard: list[Callable[[bytes], None]] = []
        self._name = ""

    def on_hint(self, callback: Callable[[bytes], None]) -> None:
        """Call back with every hint of another replica, also with one that makes no sense."""
        self._heard.append(callback)

    def tell(self, hint: bytes) -> None:
        """Tell all other replicas, soon, or never."""
        if len(hint) <= HINT_BYTES_MAX:
            self._waiting.append(hint)
            self._told.set()

    async def start(self, connection: NatsConnection, names: StreamNames, name: str) -> None:
        """Begin to hear, under the name of this replica. Raises Unreachable."""
        self._name = name
        await connection.subscribe(names.hints_subject, self._hear)

    async def run(self, connection: NatsConnection, names: StreamNames) -> None:
        """Tell what there is to tell until cancelled, and hear no more then."""
        try:
            while True:
                await self._told.wait()
                self._told.clear()
                told = _Told(self._name, list(self._waiting))
                self._waiting.clear()
                with contextlib.suppress(LogError):
                    await connection.publish(names.hints_subject, _encoder.encode(told))
                await asyncio.sleep(TELL_SECONDS)
        finally:
            with contextlib.suppress(LogError):
                await connection.unsubscribe(names.hints_subject)

    async def _hear(self, message: Msg) -> None:
        try:
            told = _decoder.decode(message.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        if told.by == self._name:
            return
        for hint in told.hints[:HINTS_MAX]:
            for callback in self._heard:
                callback(hint)
