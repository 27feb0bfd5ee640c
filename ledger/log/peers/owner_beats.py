"""Owner beats: the preferred replica of a cluster reports that it answers reviews alone.

A beat has no guarantee. A lost beat costs a write of a label, because replicas that miss the beats
take reviews as well. A replica sends a last message when it hands over, so that the others need not
wait until they miss it. A replica that receives no beats sends messages without a meaning to
itself: while they come back, its own connection is not the reason.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Annotated, Final, NamedTuple

import msgspec
from nats.aio.msg import Msg

from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.log_port import LogError

BEAT_SECONDS: Final = 0.25
"""Time between two beats."""

STALE_SECONDS: Final = 2 * BEAT_SECONDS
"""Age of the newest beat at which a replica tests its own connection."""

FAREWELLS: Final = 2
"""Messages of a replica that hands over."""


POD_PATTERN: Final = r"^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?\Z"
"""The name of a pod, or none. It becomes part of a path, so a beat with another text is ignored."""


class _BeatMessage(msgspec.Struct, frozen=True, array_like=True):
    by: Annotated[str, msgspec.Meta(pattern=POD_PATTERN)]
    alone: bool


class ReceivedBeat(NamedTuple):
    """The newest beat of another replica: the name of its pod, and the time of the event loop."""

    by: str
    at: float


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_BeatMessage)


class OwnerBeats:
    """Sends the beats of this replica and receives those of others, while it runs.

    `newest` is the newest beat of another replica; None before the first, and after that replica
    has handed over. `echoed_at` is when a message of this replica came back, in seconds of the
    event loop; None before the first.
    """

    def __init__(self, cluster: str, pod: str) -> None:
        """Prepare; `pod` is the name of the own pod, empty for a replica that sends none."""
        self.newest: ReceivedBeat | None = None
        self.echoed_at: float | None = None
        self._cluster, self._pod = cluster, pod
        self._alone: Callable[[], bool] = lambda: False

    def beat_while(self, alone: Callable[[], bool]) -> None:
        """Send beats while a function, which is called before each, returns True."""
        self._alone = alone

    async def start(self, connection: NatsConnection, names: StreamNames) -> None:
        """Subscribe. Raises Unreachable."""
        await connection.subscribe(names.beats_subject(self._cluster), self._receive)

    async def run(self, connection: NatsConnection, names: StreamNames) -> None:
        """Send beats until cancelled."""
        farewells = 0
        while True:
            alone = self._alone()
            farewells = FAREWELLS if alone else farewells - 1
            if farewells >= 0 or self._is_stale():
                message = _encoder.encode(_BeatMessage(self._pod, alone))
                with contextlib.suppress(LogError):
                    await connection.publish(names.beats_subject(self._cluster), message)
            await asyncio.sleep(BEAT_SECONDS)

    def _is_stale(self) -> bool:
        return self.newest is None or _now() - self.newest.at >= STALE_SECONDS

    async def _receive(self, message: Msg) -> None:
        try:
            beat = _decoder.decode(message.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        if beat.by == self._pod:
            self.echoed_at = _now()
        elif beat.alone:
            self.newest = ReceivedBeat(beat.by, _now())
        elif self.newest is not None and self.newest.by == beat.by:
            self.newest = None


def _now() -> float:
    return asyncio.get_running_loop().time()
