"""Hint broadcast: short messages to all other replicas, without any guarantee.

A hint is a few bytes whose meaning its sender defines, and is stale after seconds. It is sent at
most once. A lost, late or unreadable hint costs one retry that it would have saved, and never
correctness.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
from nats.aio.msg import Msg

from ledger.log.jetstream.connection import NatsConnection
from ledger.log.jetstream.shard_streams import StreamNames
from ledger.log.log_port import LogError

HINTS_MAX: Final = 256
"""Most hints that wait for the next message; with more, the oldest is dropped."""

HINT_BYTES_MAX: Final = 2_048
"""Longest hint; a longer one is not sent."""

TELL_SECONDS: Final = 0.002
"""Shortest time between two messages: hints of that time travel together."""


class _Told(msgspec.Struct, frozen=True, array_like=True):
    by: str
    hints: list[bytes]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Told)


class Hints:
    """Sends hints to other replicas and receives theirs, while it runs."""

    def __init__(self) -> None:
        """Prepare; hints sent before `start` are kept as far as there is room."""
        self._waiting: deque[bytes] = deque(maxlen=HINTS_MAX)
        self._told = asyncio.Event()
        self._heard: list[Callable[[bytes], None]] = []
        self._name = ""

    def on_hint(self, callback: Callable[[bytes], None]) -> None:
        """Call back with every hint of another replica, also with an unreadable one."""
        self._heard.append(callback)

    def tell(self, hint: bytes) -> None:
        """Send a hint to all other replicas soon, or drop it."""
        if len(hint) <= HINT_BYTES_MAX:
            self._waiting.append(hint)
            self._told.set()

    async def start(self, connection: NatsConnection, names: StreamNames, name: str) -> None:
        """Subscribe under the name of this replica. Raises Unreachable."""
        self._name = name
        await connection.subscribe(names.hints_subject, self._hear)

    async def run(self, connection: NatsConnection, names: StreamNames) -> None:
        """Send waiting hints until cancelled, then unsubscribe."""
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
