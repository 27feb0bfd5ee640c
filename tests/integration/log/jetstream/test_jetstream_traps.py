"""JetStream's traps for a ledger, each once, on the real server."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg
from support.servers.nats_servers import NatsServer, settings_for

from ledger.log.jetstream import stream_configuration
from ledger.log.jetstream.jetstream_log import JetStreamLog, _refusal
from ledger.log.jetstream.missing_records import Stream
from ledger.log.jetstream.nats_errors import ApiProblem
from ledger.log.jetstream.readers import pull_consumer, push_consumer
from ledger.log.log_port import (
    Ambiguous,
    Full,
    LogEntry,
    LogError,
    Lost,
    PositionTaken,
    Unreachable,
    Unwritable,
)

pytestmark = pytest.mark.integration

Follow = Callable[[Stream, int], AsyncGenerator[list[LogEntry], None]]
both_ways = pytest.mark.parametrize(
    "follow", [push_consumer.follow, pull_consumer.follow], ids=["push", "pull"]
)


@pytest.mark.parametrize(
    ("code", "description", "meaning"),
    [
        (10071, "wrong last sequence: 5", PositionTaken),
        (10164, "wrong last sequence", PositionTaken),
        (10158, "duplicate message id is in process", Ambiguous),
        (10077, "maximum bytes exceeded", Full),
        (10077, "no space left on device", Ambiguous),
        (10047, "insufficient storage resources available", Unwritable),
        (10060, "expected stream does not match", Lost),
        (10059, "stream not found", Lost),
        (19999, "an error of a later server", Ambiguous),
    ],
)
def test_each_refusal_maps_to_what_the_writer_must_do(
    code: int, description: str, meaning: type[LogError]
) -> None:
    error = _refusal(ApiProblem(code, description), 7)
    assert type(error) is meaning
    assert "position 7" in str(error)
    assert str(code) in str(error)


async def test_another_stream_on_the_subject_is_noticed(
    nats_server: NatsServer, shard: str
) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard))
    await log.connection.api(
        f"STREAM.CREATE.IMPOSTOR-{shard}",
        {"name": f"IMPOSTOR-{shard}", "subjects": [f"ledger.{shard}.log"], "storage": "memory"},
    )
    with pytest.raises(Lost, match="10060"):
        await log.append(b"x", 0)
    await log.close()


async def test_an_acknowledgement_of_another_position_is_noticed(
    nats_server: NatsServer, shard: str
) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard))

    async def answer(message: Msg) -> None:
        await message.respond(b'{"stream": "LEDGER-%s", "seq": 99}' % shard.encode())

    await log.connection.subscribe(f"ledger.{shard}.log", answer)
    with pytest.raises(Lost, match="position 1 was stored as 99"):
        await log.append(b"x", 0)
    await log.close()


async def unprotected(server: NatsServer, shard: str) -> JetStreamLog:
    """A log of three records whose stream lets an administrator remove some."""
    log = await JetStreamLog.connect(settings_for(server, shard))
    wanted = stream_configuration.log_stream(log.names, 1, log.settings.max_bytes)
    weak = msgspec.structs.replace(wanted, deny_delete=False, deny_purge=False)
    await log.connection.api(f"STREAM.CREATE.{wanted.name}", weak)
    for expected in range(3):
        await log.append(b"x", expected)
    return log


@pytest.mark.parametrize("read", [push_consumer.read, None], ids=["push", "pull first"])
async def test_a_record_missing_in_the_middle_is_noticed(
    nats_server: NatsServer, shard: str, read: Any
) -> None:
    log = await unprotected(nats_server, shard)
    await log.connection.api(f"STREAM.MSG.DELETE.LEDGER-{shard}", {"seq": 2})
    reading = log.read(1, 3) if read is None else read(log._log, 1, 3)
    with pytest.raises(Lost, match="position 2: the record is missing"):
        [batch async for batch in reading]
    await log.close()


@both_ways
async def test_records_missing_at_the_beginning_are_noticed(
    nats_server: NatsServer, shard: str, follow: Follow
) -> None:
    log = await unprotected(nats_server, shard)
    await log.connection.api(f"STREAM.PURGE.LEDGER-{shard}", {"seq": 4})
    async with (
        asyncio.timeout(10),
        contextlib.aclosing(follow(log._log, 1)) as batches,
    ):
        with pytest.raises(Lost, match="begins at 4, position 1 is missing"):
            await anext(batches)
    await log.close()


async def test_a_log_without_its_stream_takes_nothing(nats_server: NatsServer, shard: str) -> None:
    log = await JetStreamLog.connect(settings_for(nats_server, shard))
    with pytest.raises(Unreachable, match="no responders"):
        await log.append(b"x", 0)
    with pytest.raises(Lost, match="does not exist"):
        await log.extent()
    await log.close()


async def test_a_lost_store_is_not_quietly_made_again(own_server: NatsServer) -> None:
    settings = settings_for(own_server)
    log = await JetStreamLog.connect(settings)
    await log.open(create=True)
    await log.append(b"x", 0)
    await log.close()
    own_server.kill()
    own_server.lose_store()
    await own_server.start()
    log = await JetStreamLog.connect(settings)
    with pytest.raises(Lost, match="restore"):
        await log.open(create=False)
    with pytest.raises(Lost):
        await log.extent()
    await log.close()


async def test_acknowledged_records_survive_the_servers_death(own_server: NatsServer) -> None:
    log = await JetStreamLog.connect(settings_for(own_server, deadline=1.0))
    await log.open(create=True)
    last = 0
    for _ in range(3):
        for _ in range(50):
            last = await log.append(f"{last + 1}".encode(), last)
        own_server.kill()
        await own_server.start()
        await reached(log, last)
    async with contextlib.aclosing(push_consumer.read(log._log, 1, last)) as batches:
        payloads = [entry.payload async for batch in batches for entry in batch]
    assert payloads == [f"{position}".encode() for position in range(1, last + 1)]
    await log.close()


async def reached(log: JetStreamLog, last: int) -> None:
    """Wait until the log answers again, and check where it ends."""
    async with asyncio.timeout(20):
        while True:
            try:
                assert (await log.extent()).last == last
                return
            except Unreachable:
                await asyncio.sleep(0.05)


@both_ways
async def test_a_follower_goes_on_where_it_was_after_a_restart(
    own_server: NatsServer, follow: Follow
) -> None:
    log = await JetStreamLog.connect(settings_for(own_server, deadline=2.0))
    await log.open(create=True)
    await log.append(b"1", 0)
    async with (
        asyncio.timeout(30),
        contextlib.aclosing(follow(log._log, 1)) as batches,
    ):
        assert [entry.payload for entry in await anext(batches)] == [b"1"]
        own_server.kill()
        await own_server.start()
        await reached(log, 1)
        await log.append(b"2", 1)
        assert [entry.payload for entry in await anext(batches)] == [b"2"]
    await log.close()


@both_ways
async def test_a_follower_stops_when_the_store_was_lost_below_it(
    own_server: NatsServer, follow: Follow
) -> None:
    log = await JetStreamLog.connect(settings_for(own_server, deadline=2.0))
    await log.open(create=True)
    for expected in range(5):
        await log.append(b"x", expected)
    async with (
        asyncio.timeout(30),
        contextlib.aclosing(follow(log._log, 1)) as batches,
    ):
        await anext(batches)
        own_server.kill()
        own_server.lose_store()
        await own_server.start()
        with pytest.raises(Lost):
            await anext(batches)
    await log.close()


async def test_an_append_to_a_dead_server_ends_and_is_not_sent_later(
    own_server: NatsServer,
) -> None:
    log = await JetStreamLog.connect(settings_for(own_server, deadline=1.0))
    await log.open(create=True)
    own_server.kill()
    async with asyncio.timeout(10):
        with pytest.raises((Ambiguous, Unreachable)):
            await log.append(b"first", 0)
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
            await log.append(b"second", 0)
    await own_server.start()
    await reached(log, 0)
    await log.close()


async def test_an_append_that_is_not_answered_is_ambiguous(own_server: NatsServer) -> None:
    log = await JetStreamLog.connect(settings_for(own_server, deadline=0.5))
    await log.open(create=True)
    assert own_server.process is not None
    own_server.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Ambiguous, match=r"0\.5 s"):
            await log.append(b"x", 0)
    finally:
        own_server.process.send_signal(signal.SIGCONT)
    await log.close()


async def test_a_slow_reader_holds_the_server_back_and_misses_nothing(
    jetstream_log: JetStreamLog, shard: str
) -> None:
    last = 0
    payload = b"x" * 400_000
    for _ in range(120):
        last = await jetstream_log.append(payload, last)
    async with contextlib.aclosing(push_consumer.read(jetstream_log._log, 1, last)) as batches:
        count = len(await anext(batches))
        assert await settled_backlog(jetstream_log, shard) > 0
        async for batch in batches:
            count += len(batch)
    assert count == 120


async def test_many_short_reads_share_a_consumer(jetstream_log: JetStreamLog, shard: str) -> None:
    """A consumer of a read lives for seconds after it, and a stream has at most 256."""
    last = await jetstream_log.append(b"x", 0)
    for _ in range(stream_configuration.CONSUMERS_MAX + 1):
        read = [entry async for batch in jetstream_log.read(last, last) for entry in batch]
        assert [entry.position for entry in read] == [last]
        last = await jetstream_log.append(b"x", last)
    answer = json.loads(await jetstream_log.connection.api(f"CONSUMER.LIST.LEDGER-{shard}"))
    assert answer["total"] == 1


async def settled_backlog(log: JetStreamLog, shard: str) -> int:
    """Wait until the one consumer's backlog no longer shrinks, and return it, in messages."""
    before = -1
    while True:
        answer = json.loads(await log.connection.api(f"CONSUMER.LIST.LEDGER-{shard}"))
        backlog = int(answer["consumers"][0]["num_pending"])
        if backlog == before:
            return backlog
        before = backlog
        await asyncio.sleep(0.2)
