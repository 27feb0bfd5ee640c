"""The configuration of the log in deploy/, run: three servers that admit only whom they should."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import yaml
from support.nats import NatsServer, free_port, settings_for

from ledger.log import natsfiles
from ledger.log.connection import Access
from ledger.log.jetstream import JetStreamLog
from ledger.log.port import Unreachable

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
SHIPPED: Final = (DEPLOY / "nats.conf").read_text()
[SERVER] = [
    one["spec"]["template"]["spec"]["containers"][0]
    for one in yaml.safe_load_all((DEPLOY / "nats.yaml").read_text())
    if one["kind"] == "StatefulSet"
]
[ROUTES] = [one["value"] for one in SERVER["env"] if one["name"] == "ROUTES"]
SERVERS: Final = 3
PROBES: Final = ("startup", "readiness", "liveness")
# As docs/install.md makes them: a letter, and then digits that NATS must not take for a number.
PASSWORD: Final = "p12345678901234567890"
ROUTE_PASSWORD: Final = "p09876543210987654321"
FORM_SECONDS: Final = 60
AGAIN_SECONDS: Final = 0.2


class Shipped(NatsServer):
    """One server with the shipped configuration, on loopback instead of a pod's address."""

    def __init__(self, folder: Path, number: int, routes: list[int]) -> None:
        super().__init__(folder)
        self.name = f"gpuledger-nats-{number}"
        replaced = {
            "0.0.0.0:4222": f"127.0.0.1:{self.port}",
            "0.0.0.0:8222": f"127.0.0.1:{self.monitor_port}",
            "0.0.0.0:6222": f"127.0.0.1:{routes[number]}",
            "store_dir: /data": f'store_dir: "{folder / "data"}"',
            "max_file_store: 8GB": "max_file_store: 1GB",
        }
        text = SHIPPED
        for old, new in replaced.items():
            assert old in text, f"nats.conf has no {old}"
            text = text.replace(old, new)
        self.configuration.write_text(text)
        self._routes = ROUTES.replace("$(ROUTE_PASSWORD)", ROUTE_PASSWORD)
        for other, port in enumerate(routes):
            address = f"gpuledger-nats-{other}.gpuledger-nats:6222"
            self._routes = self._routes.replace(address, f"127.0.0.1:{port}")

    def launch(self) -> None:
        given = {
            "POD_NAME": self.name,
            "PASSWORD": PASSWORD,
            "ROUTE_PASSWORD": ROUTE_PASSWORD,
            "ROUTES": self._routes,
        }
        assert given.keys() < {one["name"] for one in SERVER["env"]}
        command = [natsfiles.binary(), "--config", self.configuration]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | given)


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[Shipped]]:
    routes = [free_port() for _ in range(SERVERS)]
    running = [Shipped(tmp_path / f"n{number}", number, routes) for number in range(SERVERS)]
    for server in running:
        server.launch()
    yield running
    for server in running:
        server.stop()


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
