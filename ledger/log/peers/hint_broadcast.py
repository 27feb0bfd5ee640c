"""Hint broadcast: short messages to all other replicas, without any guarantee.

A hint is a few bytes whose meaning its sender defines. It is sent at most once, and is stale after
seconds. A hint can save a retry; a lost, late or unreadable hint only costs that retry.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
from nats.aio.msg import Msg

from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.log_port import LogError

HINTS_MAX: Final = 256
"""Most hints that wait for the next message; with more, the oldest is dropped."""

HINT_BYTES_MAX: Final = 2_048
"""Longest hint; a longer one is not sent."""

SEND_SECONDS: Final = 0.002
"""Shortest time between two messages: hints of that time travel together."""


class _HintMessage(msgspec.Struct, frozen=True, array_like=True):
    by: str
    hints: list[bytes]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_HintMessage)


class Hints:
    """Sends hints to other replicas and receives theirs, while it runs."""

    def __init__(self) -> None:
        """Prepare; hints sent before `start` are kept as far as there is room."""
        self._waiting: deque[bytes] = deque(maxlen=HINTS_MAX)
        self._due = asyncio.Event()
        self._callbacks: list[Callable[[bytes], None]] = []
        self._name = ""

    def on_hint(self, callback: Callable[[bytes], None]) -> None:
        """Call back with every hint of another replica, also with an unreadable one."""
        self._callbacks.append(callback)

    def broadcast(self, hint: bytes) -> None:
        """Send a hint to all other replicas soon, or drop it."""
        if len(hint) <= HINT_BYTES_MAX:
            self._waiting.append(hint)
            self._due.set()

    async def start(self, connection: NatsConnection, names: StreamNames, name: str) -> None:
        """Subscribe under the name of this replica. Raises Unreachable."""
        self._name = name
        await connection.subscribe(names.hints_subject, self._receive)

    async def run(self, connection: NatsConnection, names: StreamNames) -> None:
        """Send waiting hints until cancelled, then unsubscribe."""
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                hints_sent = _HintMessage(self._name, list(self._waiting))
                self._waiting.clear()
                with contextlib.suppress(LogError):
                    await connection.publish(names.hints_subject, _encoder.encode(hints_sent))
                await asyncio.sleep(SEND_SECONDS)
        finally:
            with contextlib.suppress(LogError):
                await connection.unsubscribe(names.hints_subject)

    async def _receive(self, message: Msg) -> None:
        try:
            hints_sent = _decoder.decode(message.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        if hints_sent.by == self._name:
            return
        for hint in hints_sent.hints[:HINTS_MAX]:
            for callback in self._callbacks:
                callback(hint)
