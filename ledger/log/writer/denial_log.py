"""Denial log: the kept denials, by which users find the reason of an earlier denial.

Denials are kept by best effort and for a limited time. A denial promises nothing, so a lost one
loses an explanation and never capacity.
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
    """One denied request: its time (µs of Unix time), position, sender and demand."""

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


def encode(denied: LoggedDenial) -> bytes:
    """Encode a denial for the denials stream."""
    return _encoder.encode(denied)


def decode(payload: bytes) -> LoggedDenial:
    """Decode a denial. Raises msgspec.MsgspecError when the payload is invalid."""
    return _decoder.decode(payload)


class DenialLog:
    """Keeps denials of reservations, a bounded number of them at a time. `run` does the work."""

    def __init__(self, log: Log, waiting_max: int, *, on_dropped: Callable[[], None]) -> None:
        """Keep them in a log; `on_dropped` is called for each one that could not be kept."""
        self._log = log
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(waiting_max)
        self._on_dropped = on_dropped

    def keep(self, command: AnyCommand, denial: Denial, position: int, time: int) -> None:
        """Queue the denial of a reservation, decided at a position and a time."""
        if not isinstance(command, Reserve):
            return
        denied = LoggedDenial(
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
            self._waiting.put_nowait(encode(denied))
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
