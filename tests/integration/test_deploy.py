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


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Shipped]]:
    with shipped_servers(tmp_path) as running:
        yield running


def access(servers: list[Shipped], user: str, password: str) -> Access:
    return Access(tuple(server.url for server in servers), user=user, password=password)


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
    log = await opened(servers)
    state = State()
    payload = record(state, [SetLimits(quota("c1", "t", "q"), ("c1/t",), {"limits.x/y": 1})])
    assert payload is not None
    await log.append(payload, 0)
    await log.save_snapshot(Snapshot(1, snapshots.encode(state)))
    settings = settings_for(
        servers[0],
        access=access(servers, "agent", AGENT_PASSWORD),
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
    log = await opened(servers)
    state = State()
    payload = record(state, [SetLimits(quota("c1", "t", "q"), ("c1/t",), {"limits.x/y": 1})])
    assert payload is not None
    await log.append(payload, 0)
    await log.save_snapshot(Snapshot(1, snapshots.encode(state)))
    agent = await nats.connect(servers[0].url, user="agent", password=AGENT_PASSWORD)
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
