"""The checks of a consumer on its delivered messages."""

import asyncio
import random

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from simulation.engine.loop import VirtualLoop

from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.missing_records import Stream
from ledger.log.jetstream.nats_connection import Access, NatsConnection
from ledger.log.jetstream.readers import push_consumer
from ledger.log.jetstream.readers.push_consumer import _Consumer, follow, read
from ledger.log.log_port import Extent, LogEntry, Lost, Unreachable

STEPS_MAX = 100_000


def consumer(first: int, *, contiguous: bool = True) -> _Consumer:
    """A consumer that nothing but this test delivers to; needs a running event loop."""
    return _Consumer(Stream(NatsConnection(Access(()), 1.0), "S", contiguous), first)


def message(position: int, delivered: int, *, domain: bool = False) -> Msg:
    """A message as the server delivers it, from its own domain or another."""
    stream = "hub.account.S.c" if domain else "S.c"
    tail = ".0.random" if domain else ".0"
    reply = f"$JS.ACK.{stream}.1.{position}.{delivered}.1700000000{tail}"
    return Msg(_client=Client(), subject="s", reply=reply, data=b"x", headers=None)


@pytest.mark.parametrize("domain", [False, True])
async def test_messages_in_order_are_entries(domain: bool) -> None:
    reading = consumer(5)
    for delivered, position in enumerate((5, 6, 7), start=1):
        await reading._receive(message(position, delivered, domain=domain))
    assert await reading.take() == [LogEntry(position, b"x") for position in (5, 6, 7)]


async def test_consumer_is_given_up_after_the_entries_before_a_lost_message() -> None:
    reading = consumer(5)
    await reading._receive(message(5, 1))
    await reading._receive(message(7, 3))
    await reading._receive(message(8, 4))
    assert await reading.take() == [LogEntry(5, b"x")]
    assert await reading.take() == []


async def test_a_position_that_the_stream_skips_is_lost() -> None:
    reading = consumer(5)
    await reading._receive(message(5, 1))
    await reading._receive(message(7, 2))
    assert await reading.take() == [LogEntry(5, b"x")]
    with pytest.raises(Lost, match="position 6: the record is missing"):
        await reading.take()


async def test_a_stream_with_gaps_may_skip_positions() -> None:
    reading = consumer(5, contiguous=False)
    await reading._receive(message(9, 1))
    assert await reading.take() == [LogEntry(9, b"x")]


async def beating(reading: _Consumer, seconds: int) -> list[LogEntry] | None:
    """Return the entries of a consumer with a heartbeat in each second, None if it still waits."""
    taking = asyncio.create_task(reading.take())
    for _ in range(seconds):
        await asyncio.sleep(1)
        if taking.done():
            return taking.result()
        await reading._receive(Msg(Client(), "s", "", b"", {"Status": "100"}))
    taking.cancel()
    return None


@pytest.mark.parametrize(
    ("end", "seen", "yielded"),
    [(4, 4, None), (7, 4, []), (7, 7, []), (None, 4, None)],
    ids=["at the end", "entries are missing", "a known one is missing", "no answer"],
)
def test_a_consumer_with_heartbeats_only_is_given_up_if_it_is_behind(
    monkeypatch: pytest.MonkeyPatch, end: int | None, seen: int, yielded: list[LogEntry] | None
) -> None:
    """A replica of a stream that cannot write its files sends heartbeats without end."""

    async def extent(_: NatsConnection, stream: str) -> Extent:
        if end is None:
            raise Unreachable(f"stream {stream} has no leader")
        return Extent(1, end, 0, 0)

    async def run() -> list[LogEntry] | None:
        stream = Stream(NatsConnection(Access(()), 1.0), "S", contiguous=True, replicas=3)
        return await beating(_Consumer(stream, 5, end=seen), seconds=30)

    monkeypatch.setattr(jetstream_api, "extent", extent)
    loop = VirtualLoop(random.Random(1), steps_max=STEPS_MAX)  # type: ignore[abstract]
    assert loop.run(run()) == yielded


class _SilentConsumer(_Consumer):
    """A consumer that a server makes and then sends heartbeats to, without an entry."""

    async def attach(self) -> None:
        self._beats = asyncio.create_task(self._beat())

    async def detach(self) -> None:
        self._beats.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1)
            await self._receive(Msg(Client(), "s", "", b"", {"Status": "100"}))


_MISSING = "position 5: the record is missing, although stream S announces it"


@pytest.mark.parametrize(
    ("reads", "replicas", "error", "text"),
    [
        (lambda stream: read(stream, 5, 7), 1, Lost, _MISSING),
        (lambda stream: read(stream, 5, 7), 3, Unreachable, "sent nothing from 5 for 8.5 s"),
        (lambda stream: follow(stream, 5), 1, Lost, _MISSING),
        # It goes on, because another replica may have the record.
        (lambda stream: follow(stream, 5), 3, TimeoutError, "^$"),
    ],
    ids=["read", "read of replicas", "follow", "follow of replicas"],
)
def test_announced_records_that_never_come_are_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch, reads, replicas: int, error: type[Exception], text: str
) -> None:
    """A server whose files were cut announces the old end; each new consumer is as silent."""

    async def extent(*_: object) -> Extent:
        return Extent(1, 7, 0, 0)

    async def missing(*_: object) -> None:
        return None

    async def run() -> None:
        stream = Stream(NatsConnection(Access(()), 5.0), "S", contiguous=True, replicas=replicas)
        async with asyncio.timeout(60):
            async for _ in reads(stream):
                pytest.fail("an entry came")

    monkeypatch.setattr(jetstream_api, "extent", extent)
    monkeypatch.setattr(jetstream_api, "message", missing)
    monkeypatch.setattr(push_consumer, "_Consumer", _SilentConsumer)
    loop = VirtualLoop(random.Random(1), steps_max=STEPS_MAX)  # type: ignore[abstract]
    with pytest.raises(error, match=text):
        loop.run(run())


def test_a_stream_with_gaps_is_not_compared_with_its_end() -> None:
    """Its last position may have been dropped, so a consumer need not reach it."""

    async def run() -> list[LogEntry] | None:
        stream = Stream(NatsConnection(Access(()), 1.0), "S", contiguous=False)
        return await beating(_Consumer(stream, 5, end=7), seconds=30)

    loop = VirtualLoop(random.Random(1), steps_max=STEPS_MAX)  # type: ignore[abstract]
    assert loop.run(run()) is None
