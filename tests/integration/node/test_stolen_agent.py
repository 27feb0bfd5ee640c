"""A client with a stolen agents' password can read the log and do nothing else.

The servers run deploy/nats.conf. The client sends any request it likes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from itertools import product
from typing import Final

import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from support.servers.nats_servers import settings_for
from support.servers.shipped_log import AGENT, APIS, FORM_SECONDS, access, agent_of, filled
from support.servers.shipped_nats import (
    AGENT_PASSWORD,
    PASSWORD,
    SERVERS,
    ShippedServer,
    shipped_servers,
)

from gpuledger.node.agent_log_connection import INBOX
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.jetstream.stream_configuration import HEADERS_BYTES_MAX
from ledger.log.log_port import Ambiguous, LogEntry, Snapshot, Unreachable
from ledger.log.peers.lease import Lease
from ledger.log.records import RECORD_BYTES_MAX

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

DELIVERED_SECONDS: Final = 3.0
HEARTBEAT_NANOSECONDS: Final = 100_000_000
"""The shortest that a server takes."""
COPIES: Final = 4
STREAMS: Final = ("LEDGER-main", "LEDGER-main-SNAP")
FORBIDDEN: Final = (
    "INFO",
    "STREAM.NAMES",
    "STREAM.LIST",
    "STREAM.INFO.LEDGER-main-DENIALS",
    "STREAM.INFO.LEDGER-main-OWNER",
    *(f"STREAM.MSG.GET.LEDGER-main-{name}" for name in ("DENIALS", "OWNER", "SETTLERS")),
    *(f"STREAM.{verb}.{name}" for verb in ("UPDATE", "PURGE", "DELETE") for name in STREAMS),
    *(f"STREAM.{verb}.LEDGER-main" for verb in ("MSG.DELETE", "SNAPSHOT", "LEADER.STEPDOWN")),
    *(f"CONSUMER.{verb}.{name}" for verb in ("NAMES", "LIST", "CREATE") for name in STREAMS),
    *(
        f"CONSUMER.{verb}.LEDGER-main.c"
        for verb in ("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "PAUSE", "MSG.NEXT")
    ),
    "CONSUMER.CREATE.LEDGER-main.c.ledger.main.log",
    "CONSUMER.CREATE.LEDGER-main-SNAP.c",
    # A batch has a server read the whole log for one request.
    "DIRECT.GET.LEDGER-main",
    "DIRECT.GET.LEDGER-main.ledger.main.log",
)
"""JetStream's answers and actions, if agents were allowed to ask for them."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ShippedServer]]:
    with shipped_servers(tmp_path_factory.mktemp("shipped")) as running:
        yield running


@pytest.fixture
async def log(servers: list[ShippedServer]) -> AsyncIterator[JetStreamLog]:
    """Open the log with a record, a snapshot, and the stream of the lease to write it."""
    log = await filled(servers)
    lease = Lease(log.connection, log.names, writer="w", replicas=SERVERS)
    await lease.start()
    await lease.stop()
    yield log
    await log.close()


@pytest.fixture
async def agent(servers: list[ShippedServer]) -> AsyncIterator[Client]:
    """Connect as a client that has the agents' password."""
    connected = await agent_of(servers)
    yield connected
    await connected.close()


def closing(
    batches: AsyncIterator[Sequence[LogEntry]],
) -> aclosing[AsyncGenerator[Sequence[LogEntry]]]:
    """Return a context that closes the batches: iterators of the port, generators in fact."""
    assert isinstance(batches, AsyncGenerator)
    return aclosing(batches)


async def taken(owner: Client) -> dict[str | None, int]:
    """Return how many messages each stream has ever taken, and its consumers."""
    return {
        stream.config.name: stream.state.last_seq
        for stream in await owner.jetstream().streams_info()
    }


async def test_consumers_of_a_stolen_agent_write_nothing_also_after_it_has_gone(
    servers: list[ShippedServer], log: JetStreamLog
) -> None:
    owner = await nats.connect(servers[0].url, user="gpuledger", password=PASSWORD)
    try:
        before = await taken(owner)
        for name, target in product(STREAMS, targets(log)):
            agent = await agent_of(servers)
            for copy in range(COPIES):
                await make_consumer(agent, name, f"{target}-{copy}".replace(".", "-"), target)
            await agent.close()
        await asyncio.sleep(DELIVERED_SECONDS)
        assert await taken(owner) == before
        for stream in before:
            assert await owner.jetstream().consumers_info(str(stream)) == []
    finally:
        await owner.close()


def targets(log: JetStreamLog) -> tuple[str, ...]:
    """Return the subjects of everything that the streams of a shard store."""
    names = log.names
    return (
        names.log_subject,
        names.owner_subject,
        names.settler_subject("c1"),
        names.denials_subject,
        names.chunk_subject,
        names.manifest_subject,
    )


async def make_consumer(agent: Client, stream: str, name: str, target: str) -> None:
    """Ask for a consumer that delivers into a subject of the ledger, lasting or not."""
    config = {
        "deliver_subject": target,
        "ack_policy": "none",
        "flow_control": True,
        "idle_heartbeat": HEARTBEAT_NANOSECONDS,
    }
    for named in ("durable_name", "name"):
        body = msgspec.json.encode({"stream_name": stream, "config": config | {named: name}})
        for verb in ("CREATE", "DURABLE.CREATE"):
            asked = f"$JS.agents.API.CONSUMER.{verb}.{stream}.{name}"
            await agent.publish(asked, body, reply=agent.new_inbox())
    await agent.flush(FORM_SECONDS)


async def test_no_answer_to_an_agent_comes_to_be_stored(
    servers: list[ShippedServer], log: JetStreamLog, agent: Client
) -> None:
    owner = await nats.connect(servers[0].url, user="gpuledger", password=PASSWORD)
    try:
        before = await taken(owner)
        for api, stream, target in product(APIS, STREAMS, targets(log)):
            await agent.publish(f"{api}.STREAM.INFO.{stream}", reply=target)
            await agent.publish(f"{api}.STREAM.MSG.GET.{stream}", b'{"seq":1}', reply=target)
        await agent.flush(FORM_SECONDS)
        await asyncio.sleep(DELIVERED_SECONDS)
        assert await taken(owner) == before
        end = before[log.names.log] or 0
        assert await log.append(b"x", end) == end + 1, "the service still writes"
    finally:
        await owner.close()


async def reader_of(servers: list[ShippedServer]) -> JetStreamLog:
    """Connect to these servers as an agent does."""
    settings = settings_for(
        servers[0],
        access=access(servers, AGENT, AGENT_PASSWORD),
        replicas=SERVERS,
        deadline=5.0,
        domain="agents",
        consumers=False,
    )
    return await JetStreamLog.connect(settings)


async def test_an_agent_reads_the_largest_record_whichever_server_it_asks(
    servers: list[ShippedServer], log: JetStreamLog
) -> None:
    # The API's answer is larger than the largest message of a client.
    largest = bytes(RECORD_BYTES_MAX - HEADERS_BYTES_MAX)
    end = await log.append(largest, (await log.extent()).last)
    for server in servers:
        reader = await reader_of([server])
        try:
            assert await reader.get(end) == largest
            async with asyncio.timeout(FORM_SECONDS), closing(reader.read(end, end)) as batches:
                assert (await anext(batches))[0].payload == largest
        finally:
            await reader.close()


async def test_an_agent_reads_the_log_and_writes_nothing(
    servers: list[ShippedServer], log: JetStreamLog
) -> None:
    payload, end = await log.get(1), (await log.extent()).last
    assert payload is not None
    reader = await reader_of(servers)
    try:
        assert (await reader.extent()).last == end
        assert await reader.get(1) == payload
        assert [snapshot.position async for snapshot in reader.load_snapshots()] == [1]
        async with asyncio.timeout(FORM_SECONDS), closing(reader.follow(1)) as batches:
            assert (await anext(batches))[0].payload == payload
        with pytest.raises((Ambiguous, Unreachable)):
            await reader.append(payload, end)
        with pytest.raises(Unreachable):
            await reader.save_snapshot(Snapshot(2, b"forged"))
        assert (await log.extent()).last == end
    finally:
        await reader.close()


async def test_an_agent_receives_the_log_position_and_no_other_message(
    servers: list[ShippedServer], log: JetStreamLog, agent: Client
) -> None:
    heard: list[str] = []
    told = asyncio.Event()

    async def hear(message: Msg) -> None:
        heard.append(message.subject)
        if message.subject == log.names.news_subject:
            told.set()

    for subject in ("_INBOX.>", f"{INBOX}.>", "ledger.>", log.names.news_subject, ">"):
        await agent.subscribe(subject, cb=hear)
    await agent.flush()
    # A client with a consumer's name could redefine it. The subject contains the name.
    async with asyncio.timeout(FORM_SECONDS), closing(log.follow(1)) as batches:
        assert (await anext(batches))[0].position == 1
    await log.connection.publish(log.names.hints_subject, b"hint")
    await log.publish_denial(b"denial")
    await log.connection.publish(log.names.news_subject, b"1")
    async with asyncio.timeout(FORM_SECONDS):
        await told.wait()
    assert set(heard) == {log.names.news_subject}
    await agent.request("$JS.agents.API.STREAM.INFO.LEDGER-main", timeout=FORM_SECONDS)
    await agent.flush()
    assert len(set(heard)) > 1, "it does hear what it is answered itself"


async def test_an_agent_asks_for_nothing_but_what_reading_takes(
    log: JetStreamLog, agent: Client
) -> None:
    assert log is not None
    for asked in FORBIDDEN:
        with pytest.raises(NoRespondersError):
            await agent.request(f"$JS.agents.API.{asked}", b"{}", timeout=FORM_SECONDS)


@pytest.mark.parametrize("more", [{"batch": 1000}, {"max_bytes": 1_000_000}])
async def test_an_agent_gets_one_message_for_one_request(
    log: JetStreamLog, agent: Client, more: dict[str, int]
) -> None:
    body = msgspec.json.encode({"seq": 1} | more)
    asked = f"$JS.agents.API.STREAM.MSG.GET.{log.names.log}"
    answer = msgspec.json.decode((await agent.request(asked, body, timeout=FORM_SECONDS)).data)
    assert answer["error"]["code"] == 400
