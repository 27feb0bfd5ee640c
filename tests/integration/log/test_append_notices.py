"""Notices of appends: replicas learn at once that another one has written."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest
from support.servers.nats_servers import NatsServer, settings_for

from ledger.core.model.commands import Reserve
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.ledger_port import Accepted
from ledger.log.peers.append_notices import AppendNotifier
from ledger.log.writer.writer import Writer
from ledger.log.writer.writer_settings import WriterSettings

pytestmark = pytest.mark.integration

SELDOM = WriterSettings(refresh_seconds=30.0)
"""A replica without notices looks at the log long after the test has ended."""

HEARD_SECONDS = 5.0


@contextlib.asynccontextmanager
async def replica(
    server: NatsServer, shard: str, name: str
) -> AsyncIterator[tuple[Writer, JetStreamLog]]:
    log = await JetStreamLog.connect(settings_for(server, shard))
    await log.open(create=True)
    nonces = (f"{name}-{number}" for number in itertools.count())
    writer = Writer(
        log, name=name, now=lambda: 1_000_000, nonces=lambda: next(nonces), settings=SELDOM
    )
    await writer.open()
    news = AppendNotifier(log.connection, log.names, writer=writer)
    await news.start()
    running = [asyncio.create_task(coroutine) for coroutine in (writer.run(), news.run())]
    try:
        yield writer, log
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await log.close()


def reserve(number: int) -> Reserve:
    return Reserve("c1/team", f"pods/p-{number}", f"uid-{number}", {"nvidia.com/gpu": 1})


async def applied(writer: Writer, position: int) -> None:
    async with asyncio.timeout(HEARD_SECONDS):
        while writer.state.position < position:  # noqa: ASYNC110 - the state sends no signal
            await asyncio.sleep(0.005)


async def test_an_idle_replica_reads_at_once_what_another_has_stored(
    nats_server: NatsServer, shard: str
) -> None:
    async with (
        replica(nats_server, shard, "a") as (writer, _),
        replica(nats_server, shard, "b") as (other, _),
    ):
        for number in range(3):
            answer = await writer.submit(reserve(number))
            assert isinstance(answer, Accepted)
            await applied(other, answer.position)


async def test_a_replica_without_notice_reads_on_when_it_is_asked(
    nats_server: NatsServer, shard: str
) -> None:
    async with (
        replica(nats_server, shard, "a") as (writer, _),
        replica(nats_server, shard, "b") as (other, deaf),
    ):
        await deaf.connection.unsubscribe(deaf.names.news_subject)
        await writer.submit(reserve(1))
        answer = await other.submit(reserve(2))
        assert isinstance(answer, Accepted)
        assert other.state.position == writer.state.position + 1


async def test_other_messages_than_notices_are_ignored(nats_server: NatsServer, shard: str) -> None:
    async with (
        replica(nats_server, shard, "a") as (writer, _),
        replica(nats_server, shard, "b") as (other, _),
    ):
        sender = await JetStreamLog.connect(settings_for(nats_server, shard))
        for text in (b"", b"not a number", b"-1", b"9" * 1_000):
            await sender.connection.publish(sender.names.news_subject, text)
        await sender.close()
        answer = await writer.submit(reserve(1))
        assert isinstance(answer, Accepted)
        await applied(other, answer.position)
