"""Refusals: what the denials stream keeps, so that "why was I denied last Tuesday" has an answer.

Best effort and age-limited by design: a refusal promises nothing, so losing one loses an
explanation and never room.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import AnyCommand, Reserve
from ledger.core.model.denials import Denial
from ledger.log.log_port import Log, LogError


class LoggedDenial(msgspec.Struct, frozen=True):
    """One denied request: when (µs of Unix time), at which position, who asked for what."""

    time: int
    position: int
    namespace: str
    key: str
    uid: str
    actor: str
    demand: Amounts
    denial: Denial


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(LoggedDenial)


def encode(refusal: LoggedDenial) -> bytes:
    """Encode a refusal for the denials stream."""
    return _encoder.encode(refusal)


def decode(payload: bytes) -> LoggedDenial:
    """Decode a refusal. Raises msgspec.MsgspecError when the payload is none."""
    return _decoder.decode(payload)


class DenialLog:
    """Keeps denials of reservations, a bounded number of them at a time. `run` does the work."""

    def __init__(self, log: Log, waiting_max: int, *, on_dropped: Callable[[], None]) -> None:
        """Keep them in a log; `on_dropped` is called for each one that could not be kept."""
        self._log = log
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(waiting_max)
        self._on_dropped = on_dropped

    def keep(self, command: AnyCommand, denial: Denial, position: int, time: int) -> None:
        """Have the denial of a reservation kept, decided at a position and a time."""
        if not isinstance(command, Reserve):
            return
        refusal = LoggedDenial(
            time,
            position,
            command.namespace,
            command.key,
            command.uid,
            command.actor,
            command.demand,
            denial,
        )
        try:
            self._waiting.put_nowait(encode(refusal))
        except asyncio.QueueFull:
            self._on_dropped()

    async def run(self) -> None:
        """Send them until cancelled."""
        while True:
            payload = await self._waiting.get()
            try:
                await self._log.publish_denial(payload)
            except LogError:
                self._on_dropped()
