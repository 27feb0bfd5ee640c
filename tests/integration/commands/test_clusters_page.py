"""Start the configurations of docs/how-to/clusters.md, with only addresses and paths changed."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.harness.command_line import gpuledger
from support.servers.leaf_node import DOMAIN, joined
from support.servers.nats_servers import NatsServer, settings_for
from support.servers.ports import free_port
from support.servers.service_process import ServiceProcess, creation

from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.jetstream.nats_connection import Access
from ledger.log.log_port import Snapshot, Unreachable
from ledger.runtime.tls import server_certificate

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "clusters.md"
PASSWORD = "of-the-services"
EAST_PASSWORD = "of-the-leaf"


class Servers(NamedTuple):
    """The page's two servers."""

    hub: NatsServer
    edge: NatsServer


def configuration(name: str) -> str:
    """Return a configuration of the page."""
    match = re.search(rf"```text {re.escape(name)}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None
    return match[1]


def placed(
    server: NatsServer, name: str, leaf_port: int, tls: server_certificate.CertificateFiles
) -> None:
    """Give a server a configuration of the page, with ports and paths that are free here."""
    text = configuration(name)
    for there, here in (
        ("0.0.0.0:4222", f"127.0.0.1:{server.port}"),
        ("0.0.0.0:8222", f"127.0.0.1:{server.monitor_port}"),
        ("0.0.0.0:7422", f"127.0.0.1:{leaf_port}"),
        ("/var/lib/nats", str(server.directory / "data")),
        ("/etc/nats/tls.crt", tls.certificate),
        ("/etc/nats/tls.key", tls.key),
        ("/etc/nats/ca.crt", tls.authority),
    ):
        text = text.replace(there, here)
    assert not re.search(r"0\.0\.0\.0|/etc/|/var/", text)
    server.configuration.write_text(text)


@pytest.fixture
async def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Servers]:
    """Both servers, joined."""
    tls = server_certificate.ensure(tmp_path / "tls", ["127.0.0.1"], server_certificate.utc_now())
    leaf_port = free_port()
    monkeypatch.setenv("GPULEDGER_PASSWORD", PASSWORD)
    monkeypatch.setenv("EAST_PASSWORD", EAST_PASSWORD)
    monkeypatch.setenv("HUB_LEAF_URL", f"tls://east:{EAST_PASSWORD}@127.0.0.1:{leaf_port}")
    made = Servers(NatsServer(tmp_path / "hub"), NatsServer(tmp_path / "edge"))
    placed(made.hub, "hub.conf", leaf_port, tls)
    placed(made.edge, "edge.conf", leaf_port, tls)
    try:
        await made.hub.start()
        await made.edge.start()
        await joined(made.edge)
        monkeypatch.delenv("GPULEDGER_PASSWORD")
        yield made
    finally:
        made.edge.stop()
        made.hub.stop()


@pytest.fixture
async def services(
    servers: Servers, tmp_path: Path
) -> AsyncIterator[tuple[ServiceProcess, ServiceProcess]]:
    """The services of the page."""
    common = ("--nats-user=gpuledger", f"--nats-password={PASSWORD}")
    monitor = f"--nats-monitor={servers.hub.monitor_url}"
    near = ("--cluster=west", f"--nats={servers.hub.url}", monitor, *common)
    far = ("--cluster=east", f"--nats={servers.edge.url}", "--nats-domain=hub", monitor, *common)
    both = ServiceProcess(tmp_path / "west", *near), ServiceProcess(tmp_path / "east", *far)
    try:
        for service in both:
            await asyncio.to_thread(service.start)
        yield both
    finally:
        for service in both:
            if service.process is not None:
                service.kill()


async def test_services_of_the_page_admit_at_both_ends_and_back_up_at_the_edge(
    services: tuple[ServiceProcess, ServiceProcess], tmp_path: Path
) -> None:
    for service in services:
        async with service.client() as client:
            answer = await client.post("/admission/validate", json=creation("pod"))
        assert answer.json()["response"]["allowed"], answer.text
        reason = await asyncio.to_thread(service.wait_for, "durability", ok=True)
        assert reason == ""
    variables = {
        "GPULEDGER_" + name[2:].upper().replace("-", "_"): value
        for name, _, value in (option.partition("=") for option in services[1].options)
    }
    copied = await asyncio.to_thread(
        gpuledger, "backup", str(tmp_path / "copy"), store=tmp_path / "east", **variables
    )
    assert copied.status == 0, copied
    log = "\n".join((service.store / "service.log").read_text() for service in services)
    assert "permissions" not in log.lower()


async def test_the_leafs_user_may_not_delete_the_log(servers: Servers) -> None:
    def access(server: NatsServer) -> Access:
        return Access((server.url,), user="gpuledger", password=PASSWORD)

    near = await JetStreamLog.connect(settings_for(servers.hub, access=access(servers.hub)))
    await near.open(create=True)
    far = await JetStreamLog.connect(
        settings_for(servers.edge, access=access(servers.edge), domain=DOMAIN, deadline=1.0)
    )
    await far.open(create=False)
    await far.append(b"one", 0)
    for verb in ("DELETE", "UPDATE", "PURGE"):
        with pytest.raises(Unreachable):
            await far.connection.api(f"STREAM.{verb}.{far.names.log}", {})
    assert (await near.extent()).last == 1
    await near.close()
    await far.close()


async def test_the_leafs_user_saves_and_loads_snapshots(servers: Servers) -> None:
    """A snapshot is delivered by a consumer, for which the user needs other subjects."""
    payload = bytes(range(256)) * 16_384
    access = Access((servers.edge.url,), user="gpuledger", password=PASSWORD)
    hub = Access((servers.hub.url,), user="gpuledger", password=PASSWORD)
    near = await JetStreamLog.connect(settings_for(servers.hub, access=hub))
    await near.open(create=True)
    far = await JetStreamLog.connect(
        settings_for(servers.edge, access=access, domain=DOMAIN, deadline=5.0)
    )
    try:
        for position in (1, 2, 3):
            await far.save_snapshot(Snapshot(position, payload))
        assert [kept async for kept in far.load_snapshots()] == [
            Snapshot(3, payload),
            Snapshot(2, payload),
        ]
    finally:
        await near.close()
        await far.close()
