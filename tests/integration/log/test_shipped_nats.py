"""The configuration of the log in deploy/, run: three servers that admit only whom they should."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from support.servers.nats_servers import settings_for
from support.servers.shipped_log import access, opened
from support.servers.shipped_nats import SERVER, SERVERS, ShippedServer, shipped_servers

from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.log_port import Unreachable

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PROBES: Final = ("startup", "readiness", "liveness")
PROBES_SECONDS: Final = 60.0


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[ShippedServer]]:
    with shipped_servers(tmp_path) as running:
        yield running


async def test_the_shipped_servers_keep_a_log_that_is_fit_for_production(
    servers: list[ShippedServer],
) -> None:
    log = await opened(servers)
    try:
        durability = await log.durability()
        assert durability.problems == ()
        assert durability.replicas == SERVERS
    finally:
        await log.close()


@pytest.mark.parametrize(("user", "password"), [("", ""), ("gpuledger", "wrong")])
async def test_no_client_connects_without_the_password(
    servers: list[ShippedServer], user: str, password: str
) -> None:
    await asyncio.gather(*(server.ready() for server in servers))
    with pytest.raises(Unreachable, match="Authorization Violation"):
        await JetStreamLog.connect(
            settings_for(servers[0], access=access(servers, user, password), deadline=2.0)
        )


async def test_the_probes_of_the_manifest_are_answered(servers: list[ShippedServer]) -> None:
    log = await opened(servers)
    await log.close()
    paths = [SERVER[f"{kind}Probe"]["httpGet"]["path"] for kind in PROBES]
    async with aiohttp.ClientSession() as session, asyncio.timeout(PROBES_SECONDS):
        for url in (server.monitor_url + path for server in servers for path in paths):
            while not await _succeeds(session, url):  # noqa: ASYNC110 (no event reports it)
                # The kubelet repeats a probe, too: a new stream's copies take a moment.
                await asyncio.sleep(0.1)


async def _succeeds(session: aiohttp.ClientSession, url: str) -> bool:
    async with session.get(url, timeout=aiohttp.ClientTimeout(total=5)) as answer:
        return answer.status == 200
