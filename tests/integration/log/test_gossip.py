"""Hints: replicas receive each other's assumed placements, and never their own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs
from support.servers.nats_servers import NatsServer, settings_for

from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.peers.hint_broadcast import HINT_BYTES_MAX, HINTS_MAX, Hints

pytestmark = pytest.mark.integration

HEARD_SECONDS = 5.0


class Listener:
    """Keeps the received hints; the last hint of a test is `end`."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.ended = asyncio.Event()

    def hear(self, hint: bytes) -> None:
        self.heard.append(hint)
        if hint == b"end":
            self.ended.set()

    async def all_heard(self) -> list[bytes]:
        async with asyncio.timeout(HEARD_SECONDS):
            await self.ended.wait()
        return self.heard[:-1]


@contextlib.asynccontextmanager
async def replica(
    server: NatsServer, shard: str, name: str
) -> AsyncIterator[tuple[Hints, Listener, JetStreamLog]]:
    log = await JetStreamLog.connect(settings_for(server, shard))
    hints, listener = Hints(), Listener()
    hints.on_hint(listener.hear)
    await hints.start(log.connection, log.names, name)
    # The server answers in order, so that it has the subscription then.
    await log.connection.api("INFO")
    running = asyncio.create_task(hints.run(log.connection, log.names))
    try:
        yield hints, listener, log
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await log.close()


@contextlib.asynccontextmanager
async def two(
    server: NatsServer, shard: str
) -> AsyncIterator[tuple[Hints, Listener, JetStreamLog]]:
    """Run a replica that sends hints and one that receives; yields the log of the first, too."""
    async with (
        replica(server, shard, "a") as (sender, _, log),
        replica(server, shard, "b") as other,
    ):
        yield sender, other[1], log


async def test_all_other_replicas_receive_a_hint_and_its_sender_does_not(
    nats_server: NatsServer, shard: str
) -> None:
    async with (
        replica(nats_server, shard, "a") as (sender, itself, _),
        replica(nats_server, shard, "b") as (_, second, _),
        replica(nats_server, shard, "c") as (third, other, _),
    ):
        sender.broadcast(b"soon")
        sender.broadcast(b"end")
        assert await second.all_heard() == await other.all_heard() == [b"soon"]
        third.broadcast(b"end")
        assert await itself.all_heard() == []


async def test_of_more_hints_than_there_is_room_for_the_oldest_are_lost(
    nats_server: NatsServer, shard: str
) -> None:
    async with two(nats_server, shard) as (sender, other, _):
        for number in range(HINTS_MAX + 10):
            sender.broadcast(str(number).encode())
        sender.broadcast(b"end")
        heard = await other.all_heard()
        assert heard == [str(number).encode() for number in range(11, HINTS_MAX + 10)]


async def test_a_hint_that_is_too_long_is_not_sent(nats_server: NatsServer, shard: str) -> None:
    async with two(nats_server, shard) as (sender, other, _):
        sender.broadcast(b"x" * (HINT_BYTES_MAX + 1))
        sender.broadcast(b"end")
        assert await other.all_heard() == []


@pytest.mark.parametrize(
    "message",
    [b"\xc1 nothing that we would write", b"\x92\xa1\xff\x90", b"\x93\xa1a\x90" + b"\x91" * 10**5],
    ids=["nothing of ours", "no text", "nested without end"],
)
async def test_a_message_that_is_none_of_ours_is_passed_over(
    nats_server: NatsServer, shard: str, message: bytes
) -> None:
    async with two(nats_server, shard) as (sender, other, log):
        with capture_logs() as logs:
            await log.connection.publish(log.names.hints_subject, message)
            sender.broadcast(b"end")
            assert await other.all_heard() == []
        assert logs == []


async def test_hints_are_sent_again_after_the_server_was_away(
    nats_server: NatsServer, shard: str
) -> None:
    async with two(nats_server, shard) as (sender, other, _):
        nats_server.kill()
        sender.broadcast(b"into the void")
        await nats_server.start()
        async with asyncio.timeout(HEARD_SECONDS * 4):
            while not other.ended.is_set():
                sender.broadcast(b"end")
                await asyncio.sleep(0.1)
