"""Beats of the replica that answers alone: they arrive, end with a farewell, and come back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from support.servers.nats_servers import NatsServer

from ledger.log.jetstream.nats_connection import Access, NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.peers import owner_beats
from ledger.log.peers.owner_beats import OwnerBeats

pytestmark = pytest.mark.integration


@contextlib.asynccontextmanager
async def running(
    server: NatsServer, names: StreamNames, pod: str, cluster: str = "east"
) -> AsyncIterator[tuple[OwnerBeats, NatsConnection]]:
    """Run the beats of one replica on a connection of its own."""
    connection = await NatsConnection.connect(Access((server.url,)), deadline=5.0)
    beats = OwnerBeats(cluster, pod)
    await beats.start(connection, names)
    task = asyncio.create_task(beats.run(connection, names))
    try:
        yield beats, connection
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await connection.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 - a message has no event here
            await asyncio.sleep(0.01)


async def test_beats_arrive_until_a_farewell(nats_server: NatsServer, shard: str) -> None:
    names = StreamNames(shard)
    async with (
        running(nats_server, names, "a") as (a, _),
        running(nats_server, names, "b") as (
            b,
            _,
        ),
    ):
        alone = True
        a.beat_while(lambda: alone)
        await until(lambda: b.newest is not None)
        assert b.newest is not None
        assert b.newest.by == "a"
        alone = False
        await until(lambda: b.newest is None)
        assert a.newest is None


async def test_replica_without_beats_receives_its_own_messages(
    nats_server: NatsServer, shard: str
) -> None:
    names = StreamNames(shard)
    async with (
        running(nats_server, names, "a") as (a, _),
        running(nats_server, names, "b") as (
            b,
            _,
        ),
    ):
        await until(lambda: None not in (a.echoed_at, b.echoed_at))
        a.beat_while(lambda: True)
        await until(lambda: b.newest is not None)
        b.echoed_at = None
        await asyncio.sleep(4 * owner_beats.BEAT_SECONDS)
        assert b.echoed_at is None, "a replica that receives beats sends nothing"


async def test_unreadable_beats_and_those_of_other_clusters_do_not_count(
    nats_server: NatsServer, shard: str
) -> None:
    names = StreamNames(shard)
    async with (
        running(nats_server, names, "a", "west") as (west, connection),
        running(nats_server, names, "b") as (east, _),
    ):
        west.beat_while(lambda: True)
        await connection.publish(names.beats_subject("east"), b"\xff\x00")
        await connection.publish(names.beats_subject("east"), b"\x92\xa1b\xc2")
        await until(lambda: west.echoed_at is not None and east.echoed_at is not None)
        assert east.newest is None
