"""Aggregated server: its defects end no other part, and it serves again afterwards."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace
from starlette.routing import Route
from structlog.testing import capture_logs
from support.fakes.apiserver import client_on_loopback
from support.fakes.canned_apiserver import CannedApiServer
from support.harness.waiting import until
from support.servers.tls_server import visitor

from gpuledger.server.aggregated import aggregated_server
from gpuledger.server.aggregated.aggregated_registration import AggregatedRegistration
from gpuledger.server.aggregated.aggregated_server import AggregatedServer
from gpuledger.server.aggregated.front_proxy import FrontProxy
from ledger.kube.client.api_client import ApiClient
from ledger.runtime.http import http_server
from ledger.runtime.settings.settings import DEFAULTS
from ledger.runtime.tls import certificate_reload
from ledger.runtime.tls.certificate_reload import Tls


class Cluster:
    """The parts of the cluster's tasks that the aggregated API uses."""

    reviewer: Any = None

    def __init__(self, client: ApiClient) -> None:
        self.client = client

    def is_active(self) -> bool:
        return True


class Running:
    """A server with its counted defects; `address` is HOST:PORT."""

    def __init__(self, directory: Path, client: ApiClient) -> None:
        tls = Tls(certificate_reload.own(directory / "tls", ("localhost", "127.0.0.1")))
        listener = http_server.bind("127.0.0.1:0", "aggregated_listen")
        cluster: Any = Cluster(client)
        self.address, self.counted = listener.address, list[str]()
        self.context, self.stop = visitor(directory), asyncio.Event()
        self.server = AggregatedServer(
            replace(DEFAULTS, store_dir=str(directory)),
            listener=listener,
            routes=[Route("/v1/holders", lambda _: None)],
            cluster_tasks=cluster,
            certificates=tls,
            count=self._count,
        )

    def _count(self, name: str, *labels: str) -> None:
        self.counted.append(name)

    async def probe(self) -> int:
        """Return the status of a probe, 0 if the port is closed."""
        connector = aiohttp.TCPConnector(ssl=self.context)
        async with aiohttp.ClientSession(connector=connector) as session:
            try:
                async with session.get(f"https://{self.address}/readyz") as answer:
                    return answer.status
            except (aiohttp.ClientConnectionError, ssl.SSLError):
                return 0

    async def answered(self) -> None:
        """Wait until a probe is answered."""
        async with asyncio.timeout(10):
            while await self.probe() != 200:  # noqa: ASYNC110 (no event exists)
                await asyncio.sleep(0.01)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with client_on_loopback(CannedApiServer().app(), tmp_path) as client:
        yield Running(tmp_path, client)


@pytest.mark.parametrize(
    ("part", "steady", "pauses"),
    [
        (FrontProxy, 300.0, [0.05, 0.1]),
        (AggregatedRegistration, 300.0, [0.05, 0.1]),
        (FrontProxy, 0.0, [0.05, 0.05]),
    ],
)
async def test_defect_of_a_part_is_counted_and_the_api_begins_again(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    part: Any,
    steady: float,
    pauses: list[float],
) -> None:
    monkeypatch.setattr(aggregated_server, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(aggregated_server, "STEADY_SECONDS", steady)
    run, broken = part.run, asyncio.Event()
    failing = [True, True]

    async def fail(*given: Any) -> None:
        if failing:
            await broken.wait()
            failing.pop()
            raise KeyError("a defect")
        await run(*given)

    monkeypatch.setattr(part, "run", fail)
    with capture_logs() as logged:
        serving = asyncio.create_task(running.server.run(running.stop))
        await running.answered()
        broken.set()
        await until(lambda: len(running.counted) == 2, seconds=5.0)
        await running.answered()
        assert not serving.done(), "an error of this task would end the service"
        running.stop.set()
        await asyncio.wait_for(serving, 5)
    failures = [entry for entry in logged if entry["event"] == "aggregated_api_failed"]
    assert [entry["again_in_seconds"] for entry in failures] == pauses
    assert running.counted == ["aggregated_failures_total"] * 2


async def test_trust_of_before_a_defect_is_not_kept(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregated_server, "AGAIN_SECONDS", 0.01)
    made = list[FrontProxy]()

    class Broken(FrontProxy):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

        async def run(self) -> None:
            raise KeyError("a defect")

    monkeypatch.setattr(aggregated_server, "FrontProxy", Broken)
    serving = asyncio.create_task(running.server.run(running.stop))
    await until(lambda: len(made) > 2, seconds=5.0)  # each attempt begins without trust
    running.stop.set()
    await asyncio.wait_for(serving, 5)


async def test_certificate_of_an_unregistered_ca_is_not_served(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[bytes]()

    def is_trusted(self: AggregatedRegistration, authority: bytes) -> bool:
        asked.append(authority)
        return False

    monkeypatch.setattr(AggregatedRegistration, "is_trusted", is_trusted)
    keep_fresh, given = Tls.keep_fresh, list[Any]()

    async def kept(tls: Tls, report: Any, **named: Any) -> None:
        given.append(named["is_trusted"])
        await keep_fresh(tls, report, every_seconds=0.01, **named)

    monkeypatch.setattr(Tls, "keep_fresh", kept)
    serving = asyncio.create_task(running.server.run(running.stop))
    await until(lambda: len(asked) > 1, seconds=5.0)
    running.stop.set()
    await asyncio.wait_for(serving, 5)
    assert asked[0] == (tmp_path / "tls" / "ca.crt").read_bytes()
    assert not given[0]()
