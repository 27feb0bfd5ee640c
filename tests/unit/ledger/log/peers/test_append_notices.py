"""News of the log, without a server: what is listened to, and what leads to a look."""

import asyncio
import contextlib
import random
from types import SimpleNamespace
from typing import Any

import pytest
from simulation.engine.loop import VirtualLoop

from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.log_port import Unreachable
from ledger.log.peers.append_notices import NOTICE_SECONDS, AppendNotifier


class Wire:
    """A connection that is missing at first. `receive` takes messages of others."""

    def __init__(self) -> None:
        self.is_there = False
        self.receive: Any = None

    async def subscribe(self, subject: str, receive: Any) -> None:
        if not self.is_there:
            raise Unreachable("nobody is there")
        assert subject == "ledger.main.news"
        self.receive = receive

    async def publish(self, text: bytes) -> None:
        await self.receive(SimpleNamespace(data=text))
        await asyncio.sleep(0.01)


class Idle:
    """A writer at position 7. `looks` counts how often a refresh was requested."""

    name = "here"
    state = SimpleNamespace(position=7)

    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.looks = 0

    def subscribe(self, callback: Any) -> None:
        self.listeners.append(callback)

    def request_refresh(self) -> None:
        self.looks += 1


async def _refreshes_after(*texts: bytes) -> int:
    """Return how often a writer refreshes after these messages."""
    wire: Any = Wire()
    writer: Any = Idle()
    wire.is_there = True
    news = AppendNotifier(wire, StreamNames("main"), writer=writer)
    await news.start()
    running = asyncio.create_task(news.run())
    for text in texts:
        await wire.publish(text)
    assert not running.done()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return writer.looks


async def test_a_start_that_is_tried_again_listens_once() -> None:
    wire: Any = Wire()
    writer: Any = Idle()
    news = AppendNotifier(wire, StreamNames("main"), writer=writer)
    with pytest.raises(Unreachable):
        await news.start()
    wire.is_there = True
    await news.start()
    assert len(writer.listeners) == 1


async def test_a_position_that_is_not_known_yet_is_looked_for() -> None:
    assert await _refreshes_after(b"8") == 1


@pytest.mark.parametrize("text", [b"7", b"6", b"", b"not a number", b"-8", b" 8", b"\xb2"])
async def test_other_messages_than_notices_are_ignored(text: bytes) -> None:
    assert await _refreshes_after(text) == 0


async def test_what_comes_in_a_moment_is_looked_for_together() -> None:
    assert await _refreshes_after(*(str(position).encode() for position in range(8, 18))) < 10


class Slow(Idle):
    """A writer whose refresh takes so many seconds. `newest` is the end of the log."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.state = SimpleNamespace(position=7)
        self.newest = 7
        self._seconds = seconds

    def request_refresh(self) -> None:
        super().request_refresh()
        asyncio.get_running_loop().call_later(self._seconds, self._applied)

    def _applied(self) -> None:
        self.state.position = self.newest
        for listener in self.listeners:
            listener(SimpleNamespace(writer="there"))


@pytest.mark.parametrize(
    ("seconds", "least", "most"),
    [(0.001, 165, 200), (0.02, 95, 105), (0.2, 20, 25), (100.0, 19, 21)],
    ids=["quick", "a fifth of the time", "longest pause", "no read ends"],
)
def test_reads_take_a_part_of_the_time(seconds: float, least: int, most: int) -> None:
    async def reads_in_ten_seconds() -> int:
        wire: Any = Wire()
        writer: Any = Slow(seconds)
        wire.is_there = True
        news = AppendNotifier(wire, StreamNames("main"), writer=writer)
        await news.start()
        running = asyncio.get_running_loop().create_task(news.run())
        for _ in range(1_000):
            writer.newest += 1
            await wire.publish(str(writer.newest).encode())
        running.cancel()
        return int(writer.looks)

    loop = VirtualLoop(random.Random(1), steps_max=100_000)  # type: ignore[abstract]
    assert least <= loop.run(reads_in_ten_seconds()) <= most


class Sent(Wire):
    """A connection that keeps the loop time and the text of each notice."""

    def __init__(self) -> None:
        super().__init__()
        self.is_there = True
        self.notices: list[tuple[float, bytes]] = []

    async def publish(self, subject: str, text: bytes) -> None:  # type: ignore[override]  # as NATS
        self.notices.append((asyncio.get_running_loop().time(), text))


def _notices_of(*pauses: float) -> list[tuple[float, bytes]]:
    """Store a record after each pause, and return the notices of all with their loop times."""

    async def store_all() -> list[tuple[float, bytes]]:
        wire: Any = Sent()
        writer: Any = Slow(0.0)
        news = AppendNotifier(wire, StreamNames("main"), writer=writer)
        await news.start()
        loop = asyncio.get_running_loop()
        running, begun = loop.create_task(news.run()), loop.time()
        for pause in pauses:
            await asyncio.sleep(pause)
            writer.state.position += 1
            for listener in writer.listeners:
                listener(SimpleNamespace(writer="here"))
        await asyncio.sleep(1.0)
        running.cancel()
        return [(sent - begun, text) for sent, text in wire.notices]

    return VirtualLoop(random.Random(1), steps_max=100_000).run(store_all())  # type: ignore[abstract]


def test_records_in_quick_succession_share_notices_until_the_last() -> None:
    notices = _notices_of(*[0.0005] * 1_000)
    assert len(notices) <= 0.5 / NOTICE_SECONDS + 2
    assert notices[-1][1] == b"1007"


def test_a_record_after_a_pause_is_announced_at_once() -> None:
    for sent, stored in zip(_notices_of(0.1, 0.1, 0.1), (0.1, 0.2, 0.3), strict=True):
        assert sent[0] == pytest.approx(stored, abs=0.001)
