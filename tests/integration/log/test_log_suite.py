"""The contract of every log: on the real server, across a leaf node, by requests, in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing

import pytest
from support.servers.leaf_node import DOMAIN
from support.servers.nats_servers import settings_for

from ledger.log.jetstream.jetstream_log import JetStreamLog, JetStreamSettings
from ledger.log.log_port import LogEntry, Lost, PositionTaken, Snapshot, Unreachable
from ledger.log.memory_log import MemoryLog, MemoryStore

pytestmark = pytest.mark.integration

AnyLog = JetStreamLog | MemoryLog
Connect = Callable[[], Awaitable[AnyLog]]

PATIENCE_SECONDS = 15.0


@pytest.fixture(params=["memory", "jetstream", "leaf", "requests"])
def settings(request: pytest.FixtureRequest, shard: str) -> JetStreamSettings | None:
    """The place of the log: on a server, beyond a leaf node, or with None in memory.

    With `requests` it is read as agents read it, without consumers.
    """
    if request.param == "memory":
        return None
    if request.param == "leaf":
        return settings_for(request.getfixturevalue("edge_server"), shard, domain=DOMAIN)
    consumers = request.param != "requests"
    return settings_for(request.getfixturevalue("nats_server"), shard, consumers=consumers)


@pytest.fixture
async def connect(settings: JetStreamSettings | None) -> AsyncIterator[Connect]:
    """Make any number of clients of one store."""
    store = MemoryStore()
    made: list[AnyLog] = []

    async def client() -> AnyLog:
        made.append(MemoryLog(store) if settings is None else await JetStreamLog.connect(settings))
        return made[-1]

    yield client
    for log in made:
        await log.close()


@pytest.fixture
async def log(connect: Connect) -> AnyLog:
    """An opened, empty log."""
    opened = await connect()
    await opened.open(create=True)
    return opened


async def fill(log: AnyLog, count: int) -> list[bytes]:
    """Append so many records to an empty log."""
    payloads = [f"record {position}".encode() for position in range(1, count + 1)]
    for expected, payload in enumerate(payloads):
        assert await log.append(payload, expected) == expected + 1
    return payloads


async def collect(batches: AsyncIterator[Sequence[LogEntry]], count: int) -> list[LogEntry]:
    """Take so many entries."""
    entries: list[LogEntry] = []
    async with asyncio.timeout(PATIENCE_SECONDS), aclosing(batches) as source:  # type: ignore[type-var]
        async for batch in source:
            entries.extend(batch)
            if len(entries) >= count:
                break
    return entries


async def test_positions_count_from_one_without_gaps(log: AnyLog) -> None:
    payloads = await fill(log, 5)
    entries = await collect(log.read(1, 5), 5)
    assert entries == [LogEntry(position, payloads[position - 1]) for position in range(1, 6)]


async def test_a_stale_expected_position_is_refused_and_nothing_is_stored(log: AnyLog) -> None:
    await fill(log, 3)
    with pytest.raises(PositionTaken):
        await log.append(b"late", 2)
    assert (await log.extent()).last == 3


async def test_an_expected_position_ahead_of_the_log_is_refused(log: AnyLog) -> None:
    with pytest.raises(PositionTaken):
        await log.append(b"early", 7)
    assert (await log.extent()).last == 0


async def test_of_many_writers_at_one_position_exactly_one_wins(connect: Connect) -> None:
    clients = [await connect() for _ in range(8)]
    await clients[0].open(create=True)
    answers = await asyncio.gather(
        *(client.append(f"{number}".encode(), 0) for number, client in enumerate(clients)),
        return_exceptions=True,
    )
    assert answers.count(1) == 1
    assert sum(isinstance(answer, PositionTaken) for answer in answers) == 7
    assert await clients[0].get(1) == f"{answers.index(1)}".encode()


async def test_writers_that_retry_lose_and_double_nothing(connect: Connect) -> None:
    clients = [await connect() for _ in range(3)]
    await clients[0].open(create=True)

    async def write(name: int, client: AnyLog) -> None:
        for number in range(20):
            while True:
                last = (await client.extent()).last
                try:
                    await client.append(f"{name}/{number}".encode(), last)
                    break
                except PositionTaken:
                    continue

    await asyncio.gather(*(write(name, client) for name, client in enumerate(clients)))
    entries = await collect(clients[0].read(1, 60), 60)
    assert sorted(entry.payload for entry in entries) == sorted(
        f"{name}/{number}".encode() for name in range(3) for number in range(20)
    )


async def test_the_extent_is_as_new_as_every_acknowledged_append(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    await writer.open(create=True)
    for expected in range(20):
        await writer.append(b"x", expected)
        assert (await reader.extent()).last == expected + 1


async def test_the_extent_contains_size_and_maximum(log: AnyLog) -> None:
    before = await log.extent()
    await log.append(b"x" * 1000, 0)
    after = await log.extent()
    assert (before.last, after.first, after.last) == (0, 1, 1)
    assert after.size >= before.size + 1000


async def test_get_returns_what_is_there_and_none_where_nothing_is(log: AnyLog) -> None:
    await fill(log, 2)
    assert [await log.get(position) for position in range(4)] == [
        None,
        b"record 1",
        b"record 2",
        None,
    ]


async def test_a_record_of_almost_the_largest_message_comes_back(log: AnyLog) -> None:
    payload = bytes(range(256)) * 4_000
    await log.append(payload, 0)
    assert await log.get(1) == payload
    assert await collect(log.read(1, 1), 1) == [LogEntry(1, payload)]


async def test_an_empty_record_is_a_record(log: AnyLog) -> None:
    await log.append(b"", 0)
    assert await log.get(1) == b""


@pytest.mark.parametrize(("first", "last"), [(1, 700), (350, 360), (700, 700), (0, 3)])
async def test_any_range_is_read_in_order(log: AnyLog, first: int, last: int) -> None:
    await fill(log, 700)
    entries = await collect(log.read(first, last), 1_000)
    assert [entry.position for entry in entries] == list(range(max(first, 1), last + 1))


async def test_an_empty_range_yields_nothing(log: AnyLog) -> None:
    await fill(log, 2)
    assert await collect(log.read(3, 2), 1) == []


async def test_reading_past_the_end_reports_lost_records(log: AnyLog) -> None:
    await fill(log, 2)
    with pytest.raises(Lost, match="ends at 2"):
        await collect(log.read(1, 4), 4)


async def test_a_follower_gets_what_is_there_and_what_comes(log: AnyLog) -> None:
    await fill(log, 3)
    following = asyncio.create_task(collect(log.follow(2), 4))
    for expected in (3, 4):
        await log.append(b"new", expected)
    assert [entry.position for entry in await following] == [2, 3, 4, 5]


async def test_a_follower_that_has_seen_more_than_there_is_stops(log: AnyLog) -> None:
    await fill(log, 3)
    with pytest.raises(Lost, match="ends at 3"):
        await collect(log.follow(9), 1)


async def test_a_follower_ends_when_its_log_is_closed(log: AnyLog) -> None:
    following = asyncio.create_task(collect(log.follow(1), 99))
    await log.append(b"x", 0)
    await asyncio.sleep(0.05)
    await log.close()
    async with asyncio.timeout(20):
        assert len(await following) <= 1


async def test_a_closed_log_raises_an_error(log: AnyLog) -> None:
    await log.close()
    with pytest.raises(Unreachable, match="closed"):
        await log.append(b"x", 0)
    with pytest.raises(Unreachable, match="closed"):
        await log.extent()


async def test_a_missing_log_is_lost_unless_it_may_be_created(connect: Connect) -> None:
    log = await connect()
    with pytest.raises(Lost, match="restore"):
        await log.open(create=False)
    await log.open(create=True)
    await log.open(create=False)


async def test_opening_again_keeps_what_is_there(connect: Connect) -> None:
    first, second = await connect(), await connect()
    await first.open(create=True)
    await fill(first, 2)
    await second.open(create=True)
    assert (await second.extent()).last == 2


async def test_the_newest_two_snapshots_are_kept_newest_first(log: AnyLog) -> None:
    for position in (10, 20, 30, 40):
        await log.save_snapshot(Snapshot(position, f"state {position}".encode()))
    assert [snapshot async for snapshot in log.load_snapshots()] == [
        Snapshot(40, b"state 40"),
        Snapshot(30, b"state 30"),
    ]


async def test_a_snapshot_of_many_pieces_comes_back_whole(log: AnyLog) -> None:
    payload = bytes(range(251)) * 13_000
    await log.save_snapshot(Snapshot(1, b""))
    await log.save_snapshot(Snapshot(2, payload))
    assert [snapshot async for snapshot in log.load_snapshots()] == [
        Snapshot(2, payload),
        Snapshot(1, b""),
    ]


async def test_without_snapshots_there_are_none(log: AnyLog) -> None:
    assert [snapshot async for snapshot in log.load_snapshots()] == []


async def test_snapshots_and_denials_are_not_in_the_log(log: AnyLog) -> None:
    await log.save_snapshot(Snapshot(1, b"state"))
    await log.publish_denial(b"no")
    assert (await log.extent()).last == 0


async def test_denials_are_followed_from_a_position(log: AnyLog) -> None:
    for number in range(3):
        await log.publish_denial(f"denial {number}".encode())
    assert len(await collect(log.follow_denials(1), 3)) == 3
    denials = await collect(log.follow_denials(2), 2)
    assert denials == [LogEntry(2, b"denial 1"), LogEntry(3, b"denial 2")]


async def test_denials_of_a_younger_stream_are_read_from_its_start(log: AnyLog) -> None:
    await log.publish_denial(b"only")
    assert await collect(log.follow_denials(77), 1) == [LogEntry(1, b"only")]
