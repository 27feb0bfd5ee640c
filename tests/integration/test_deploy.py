"""The configuration of the log in deploy/, run: three servers that admit only whom they should."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from itertools import product
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from support.folding import record
from support.nats import settings_for
from support.shipped import (
    AGENT_PASSWORD,
    PASSWORD,
    SERVER,
    SERVERS,
    Shipped,
    shipped_servers,
)

from gpuledger.agent_log import INBOX
from ledger.core import snapshots
from ledger.core.accounts import quota
from ledger.core.commands import SetLimits
from ledger.core.state import State
from ledger.log.connection import Access
from ledger.log.jetstream import JetStreamLog
from ledger.log.port import Ambiguous, Snapshot, Unreachable

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PROBES: Final = ("startup", "readiness", "liveness")
FORM_SECONDS: Final = 60
AGAIN_SECONDS: Final = 0.2
DELIVERED_SECONDS: Final = 2.0
APIS: Final = ("$JS.API", "$JS.hub.API", "$JS.agents.API")
STREAMS: Final = ("LEDGER-main", "LEDGER-main-SNAP")
AGENT: Final = "agent"
FORBIDDEN: Final = (
    "INFO",
    "STREAM.NAMES",
    "STREAM.LIST",
    "STREAM.INFO.LEDGER-main-DENIALS",
    *(f"STREAM.{verb}.{name}" for verb in ("UPDATE", "PURGE", "DELETE") for name in STREAMS),
    *(f"STREAM.{verb}.LEDGER-main" for verb in ("MSG.DELETE", "SNAPSHOT", "LEADER.STEPDOWN")),
    *(f"CONSUMER.{verb}.LEDGER-main" for verb in ("NAMES", "LIST", "CREATE")),
    *(f"CONSUMER.{verb}.LEDGER-main.c" for verb in ("DURABLE.CREATE", "INFO", "DELETE", "PAUSE")),
    "CONSUMER.CREATE.LEDGER-main.c.ledger.main.log",
    "CONSUMER.MSG.NEXT.LEDGER-main.c",
    "CONSUMER.CREATE.LEDGER-main-SNAP.c",
)
"""What JetStream would answer, or do, if agents might ask for it."""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Shipped]]:
    with shipped_servers(tmp_path) as running:
        yield running


def access(servers: list[Shipped], user: str, password: str) -> Access:
    urls = tuple(server.url for server in servers)
    inbox = INBOX if user == AGENT else "_INBOX"
    return Access(urls, user=user, password=password, inbox_prefix=inbox)


async def agent_of(servers: list[Shipped]) -> Client:
    """Connect as whoever has the agents' password, and asks what it likes."""
    return await nats.connect(
        servers[0].url, user=AGENT, password=AGENT_PASSWORD, inbox_prefix=INBOX
    )


async def opened(servers: list[Shipped]) -> JetStreamLog:
    """Open the log as the service does in production, as soon as there is a leader."""
    settings = settings_for(
        servers[0],
        access=access(servers, "gpuledger", PASSWORD),
        monitor_urls=tuple(server.monitor_url for server in servers),
        replicas=SERVERS,
        production=True,
    )
    await asyncio.gather(*(server.ready() for server in servers))
    log = await JetStreamLog.connect(settings)
    async with asyncio.timeout(FORM_SECONDS):
        while True:
            try:
                await log.open(create=True)
                return log
            except Unreachable:
                await asyncio.sleep(AGAIN_SECONDS)


async def filled(servers: list[Shipped]) -> tuple[JetStreamLog, bytes]:
    """Open the log, and give it one record, which is returned, and the snapshot after it."""
    log = await opened(servers)
    state = State()
    payload = record(state, [SetLimits(quota("c1", "t", "q"), ("c1/t",), {"limits.x/y": 1})])
    assert payload is not None
    await log.append(payload, 0)
    await log.save_snapshot(Snapshot(1, snapshots.encode(state)))
    return log, payload


async def test_the_shipped_servers_keep_a_log_that_is_fit_for_production(
    servers: list[Shipped],
) -> None:
    log = await opened(servers)
    try:
        found = await log.durability()
        assert found.problems == ()
        assert found.replicas == SERVERS
    finally:
        await log.close()


async def test_an_agent_reads_the_log_and_writes_nothing(servers: list[Shipped]) -> None:
    log, payload = await filled(servers)
    settings = settings_for(
        servers[0],
        access=access(servers, AGENT, AGENT_PASSWORD),
        replicas=SERVERS,
        deadline=2.0,
        domain="agents",
    )
    reader = await JetStreamLog.connect(settings)
    try:
        assert (await reader.extent()).last == 1
        assert await reader.get(1) == payload
        assert [one.position for one in await reader.load_snapshots()] == [1]
        async with asyncio.timeout(FORM_SECONDS), aclosing(reader.follow(1)) as batches:
            assert (await anext(batches))[0].payload == payload
        with pytest.raises((Ambiguous, Unreachable)):
            await reader.append(payload, 1)
        with pytest.raises(Unreachable):
            await reader.save_snapshot(Snapshot(2, b"forged"))
        assert (await log.extent()).last == 1
    finally:
        await reader.close()
        await log.close()


async def test_an_agent_has_nothing_answered_or_delivered_into_the_log(
    servers: list[Shipped],
) -> None:
    log, payload = await filled(servers)
    agent = await agent_of(servers)
    try:
        for number, (api, stream) in enumerate(product(APIS, STREAMS)):
            subject = log.names.log_subject
            await agent.publish(f"{api}.STREAM.INFO.{stream}", reply=subject)
            name = f"evil{number}"
            config = {"name": name, "deliver_subject": subject, "num_replicas": 1}
            wanted = {"stream_name": stream, "config": config | {"ack_policy": "none"}}
            create = f"{api}.CONSUMER.CREATE.{stream}.{name}"
            await agent.publish(create, msgspec.json.encode(wanted), reply=agent.new_inbox())
        await agent.flush()
        await asyncio.sleep(DELIVERED_SECONDS)
        assert (await log.extent()).last == 1
        assert await log.append(payload, 1) == 2, "whoever decides still can"
    finally:
        await agent.close()
        await log.close()


async def test_what_an_agent_has_delivered_to_other_streams_is_refused_there(
    servers: list[Shipped],
) -> None:
    log, _ = await filled(servers)
    owner = await nats.connect(servers[0].url, user="gpuledger", password=PASSWORD)
    agent = await agent_of(servers)
    names = log.names
    delivered = {
        "to-manifests": names.manifest_subject,
        "to-chunks": names.chunk_subject,
        "to-denials": names.denials_subject,
        "to-purge": f"$JS.API.STREAM.PURGE.{names.snapshots}",
        "to-delete": f"$JS.API.STREAM.DELETE.{names.snapshots}",
    }
    try:
        before = await kept(owner)
        for name, subject in delivered.items():
            config = {"name": name, "deliver_subject": subject, "ack_policy": "none"}
            wanted = msgspec.json.encode({"stream_name": names.log, "config": config})
            asked = f"$JS.agents.API.CONSUMER.CREATE.{names.log}.{name}"
            answer = await agent.request(asked, wanted, timeout=FORM_SECONDS)
            assert b"error" not in answer.data, answer.data
        await asyncio.sleep(DELIVERED_SECONDS)
        for name, subject in delivered.items():
            told = await owner.jetstream().consumer_info(names.log, name)
            assert told.delivered is not None
            # To the server's own API nothing is delivered at all.
            assert told.delivered.consumer_seq == (0 if subject.startswith("$JS.") else 1)
        assert await kept(owner) == before
        assert [one.position for one in await log.load_snapshots()] == [1]
    finally:
        await owner.close()
        await agent.close()
        await log.close()


async def kept(owner: Client) -> dict[str | None, int]:
    """Return how many messages each stream has."""
    return {one.config.name: one.state.messages for one in await owner.jetstream().streams_info()}


async def test_an_agent_hears_nothing_that_is_said_to_the_service(servers: list[Shipped]) -> None:
    log, payload = await filled(servers)
    heard: list[str] = []

    async def hear(message: Msg) -> None:
        heard.append(message.subject)

    agent = await agent_of(servers)
    try:
        for subject in ("_INBOX.>", f"{INBOX}.>", ">"):
            await agent.subscribe(subject, cb=hear)
        await agent.flush()
        # Whoever knows the name of a consumer could make it another; it is in the subject.
        async with asyncio.timeout(FORM_SECONDS), aclosing(log.follow(1)) as batches:
            assert (await anext(batches))[0].payload == payload
        await agent.flush()
        assert heard == []
        await agent.request("$JS.agents.API.STREAM.INFO.LEDGER-main", timeout=FORM_SECONDS)
        await agent.flush()
        assert heard, "it does hear what it is answered itself"
    finally:
        await agent.close()
        await log.close()


async def test_an_agent_asks_for_nothing_but_what_reading_takes(servers: list[Shipped]) -> None:
    log = await opened(servers)
    agent = await agent_of(servers)
    try:
        for asked in FORBIDDEN:
            with pytest.raises(NoRespondersError):
                await agent.request(f"$JS.agents.API.{asked}", b"{}", timeout=FORM_SECONDS)
    finally:
        await agent.close()
        await log.close()


@pytest.mark.parametrize(("user", "password"), [("", ""), ("gpuledger", "wrong")])
async def test_nobody_connects_without_the_password(
    servers: list[Shipped], user: str, password: str
) -> None:
    await asyncio.gather(*(server.ready() for server in servers))
    with pytest.raises(Unreachable, match="Authorization Violation"):
        await JetStreamLog.connect(
            settings_for(servers[0], access=access(servers, user, password), deadline=2.0)
        )


async def test_the_probes_of_the_manifest_are_answered(servers: list[Shipped]) -> None:
    log = await opened(servers)
    await log.close()
    paths = [SERVER[f"{kind}Probe"]["httpGet"]["path"] for kind in PROBES]
    async with aiohttp.ClientSession() as session:
        for url in (server.monitor_url + path for server in servers for path in paths):
            async with session.get(url, timeout=aiohttp.ClientTimeout(total=5)) as answer:
                assert answer.status == 200, f"{url}: {await answer.text()}"
