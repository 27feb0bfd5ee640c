"""Three servers, three replicas: what happens to acknowledged records when the leader goes."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from support.servers.nats_servers import NatsServer, settings_for
from support.servers.ports import free_port

from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.jetstream.nats_connection import Access
from ledger.log.jetstream.nats_errors import ApiError
from ledger.log.jetstream.readers import pull_consumer, push_consumer
from ledger.log.jetstream.stream_configuration import ConfigurationDrift, log_stream
from ledger.log.log_port import Ambiguous, LogError, PositionTaken, Snapshot, Unreachable

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


KILLS: Final = 30

LONG_SECONDS: Final = 60.0
"""A deadline that is far longer than the election of a leader, also than one that is repeated."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[list[NatsServer]]:
    """Three servers with routes to one another."""
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers = [
        NatsServer(
            tmp_path / f"n{number}",
            extra=f'cluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{routes}] }}',
        )
        for number, port in enumerate(ports)
    ]
    for server in servers:
        server.launch()
    yield servers
    for server in servers:
        server.stop()


async def connected(
    servers: list[NatsServer], *, replicas: int = 3, deadline: float = 2.0
) -> JetStreamLog:
    """Open the log as soon as the cluster has elected a leader."""
    access = Access(tuple(server.url for server in servers))
    settings = settings_for(servers[0], access=access, replicas=replicas, deadline=deadline)
    async with asyncio.timeout(60):
        while True:
            try:
                log = await JetStreamLog.connect(settings)
                break
            except Unreachable:
                await asyncio.sleep(0.2)
        while True:
            try:
                await log.open(create=True)
                return log
            except Unreachable:
                await asyncio.sleep(0.2)


async def leader_of(log: JetStreamLog, servers: list[NatsServer]) -> NatsServer:
    """Return the server that leads the log's stream."""
    info = json.loads(await log.connection.api(f"STREAM.INFO.{log.names.log}"))
    return next(server for server in servers if server.directory.name == info["cluster"]["leader"])


async def caught_up(log: JetStreamLog, server: NatsServer) -> None:
    """Wait until a server has all records of the log, or leads its stream."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(LogError, ApiError):
                answer = await log.connection.api(f"STREAM.INFO.{log.names.log}")
                info = json.loads(answer)["cluster"]
                current = {peer["name"] for peer in info["replicas"] if peer["current"]}
                if server.directory.name in {info.get("leader"), *current}:
                    return
            await asyncio.sleep(0.1)


class Appender:
    """Appends as the writer does: the record at its position settles an unclear append."""

    def __init__(self, log: JetStreamLog, padding: Callable[[], bytes] = bytes) -> None:
        self.log, self.padding = log, padding
        self.acknowledged: dict[int, bytes] = {}
        self.number = 0

    async def until(self, count: int) -> None:
        """Append until so many records are known to be stored."""
        async with asyncio.timeout(90):
            while len(self.acknowledged) < count:
                try:
                    await self._one()
                except Unreachable:
                    await asyncio.sleep(0.1)

    async def without_end(self) -> None:
        """Append until this task is cancelled."""
        while True:
            await self.until(len(self.acknowledged) + 1)

    async def _one(self) -> None:
        last = (await self.log.extent()).last
        self.number += 1
        payload = f"payload {self.number}".encode() + self.padding()
        try:
            position = await self.log.append(payload, last)
        except PositionTaken:
            return
        except Ambiguous:
            if await self._stored(last + 1) != payload:
                return
            position = last + 1
        assert position not in self.acknowledged
        self.acknowledged[position] = payload

    async def _stored(self, position: int) -> bytes | None:
        while True:
            try:
                return await self.log.get(position)
            except LogError:
                await asyncio.sleep(0.1)


async def contents(log: JetStreamLog) -> dict[int, bytes]:
    """Read the whole log."""
    last = (await log.extent()).last
    async with aclosing(push_consumer.read(log._log, 1, last)) as batches:
        return {entry.position: entry.payload async for batch in batches for entry in batch}


@pytest.mark.parametrize("end", [NatsServer.kill, NatsServer.terminate], ids=["kill", "terminate"])
async def test_nothing_acknowledged_is_lost_with_the_leader(
    cluster: list[NatsServer], end: Callable[[NatsServer], None]
) -> None:
    log = await connected(cluster)
    appender = Appender(log)
    await appender.until(100)
    leader = await leader_of(log, cluster)
    appending = asyncio.create_task(appender.until(300))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(end, leader)
    await appending
    await leader.start()
    await appender.until(320)
    payloads = await contents(log)
    assert {position: payloads[position] for position in appender.acknowledged} == (
        appender.acknowledged
    )
    assert list(payloads) == list(range(1, len(payloads) + 1))
    await log.close()


@pytest.mark.parametrize("end", [NatsServer.kill, NatsServer.terminate], ids=["kill", "terminate"])
async def test_appends_wait_for_another_leader_and_not_for_their_deadline(
    cluster: list[NatsServer], end: Callable[[NatsServer], None]
) -> None:
    log = await connected(cluster, deadline=LONG_SECONDS)
    appender = Appender(log)
    await appender.until(50)
    leader = await leader_of(log, cluster)
    ending = asyncio.create_task(asyncio.to_thread(end, leader))
    async with asyncio.timeout(LONG_SECONDS / 2):
        while not ending.done():
            await appender.until(len(appender.acknowledged) + 1)
        await appender.until(len(appender.acknowledged) + 20)
    await log.close()


@pytest.mark.parametrize("reader", [push_consumer, pull_consumer], ids=["push", "pull"])
async def test_a_follower_lives_through_the_loss_of_a_leader(
    cluster: list[NatsServer], reader: ModuleType
) -> None:
    log = await connected(cluster)
    appender = Appender(log)
    seen: list[int] = []

    async def follow(count: int) -> None:
        async with aclosing(reader.follow(log._log, 1)) as batches:
            async for batch in batches:
                seen.extend(entry.position for entry in batch)
                if seen[-1] >= count:
                    return

    following = asyncio.create_task(follow(60))
    await appender.until(30)
    await asyncio.to_thread((await leader_of(log, cluster)).kill)
    await appender.until(60)
    await asyncio.wait_for(following, 30)
    assert seen == list(range(1, len(seen) + 1))
    await log.close()


async def test_writers_on_different_servers_never_share_a_position(
    cluster: list[NatsServer],
) -> None:
    logs = [await connected([server]) for server in cluster]
    appenders = [Appender(log) for log in logs]
    await asyncio.gather(*(appender.until(50) for appender in appenders))
    positions = [position for appender in appenders for position in appender.acknowledged]
    assert len(positions) == len(set(positions)) == 150
    payloads = await contents(logs[0])
    for appender in appenders:
        assert {position: payloads[position] for position in appender.acknowledged} == (
            appender.acknowledged
        )
    for log in logs:
        await log.close()


async def test_fewer_replicas_than_wanted_are_drift(cluster: list[NatsServer]) -> None:
    single = await connected(cluster, replicas=1)
    with pytest.raises(ConfigurationDrift, match="num_replicas is 1, wanted 3"):
        await jetstream_api.ensure(
            single.connection,
            log_stream(single.names, 3, single.settings.max_bytes),
            create=False,
        )
    await single.close()


async def test_a_large_snapshot_is_replicated_whole(cluster: list[NatsServer]) -> None:
    log = await connected(cluster)
    payload = bytes(range(256)) * 40_000
    await log.save_snapshot(Snapshot(5, payload))
    assert [snapshot async for snapshot in log.load_snapshots()] == [Snapshot(5, payload)]
    await log.close()


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_no_server_loses_its_copy_of_the_log_by_a_kill(cluster: list[NatsServer]) -> None:
    """With s2 compression, a server finds its own files corrupt within 20 kills."""
    log, chance = await connected(cluster), random.Random(1)
    appender = Appender(log, lambda: chance.randbytes(chance.choice([200, 400, 3_000])))
    appending = asyncio.create_task(appender.without_end())
    for _ in range(KILLS):
        victim = chance.choice(cluster)
        await asyncio.sleep(1.5 * chance.random())
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(chance.choice([0.1, 0.5, 2.0]))
        await victim.start()
        await caught_up(log, victim)
        printed = (victim.directory / "log").read_text()
        assert "corrupt" not in printed, printed[-4_000:]
    appending.cancel()
    payloads = await contents(log)
    assert {at: payloads[at] for at in appender.acknowledged} == appender.acknowledged
    await log.close()
