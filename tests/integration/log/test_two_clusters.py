"""Two clusters' services on one log, at both ends of a link that is cut under load."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from support.servers.leaf_node import DOMAIN, Clusters, clusters
from support.servers.nats_servers import settings_for
from support.servers.service_process import ServiceProcess, creation

from ledger.core.model import accounts, commands
from ledger.core.model.denials import Reason
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.ledger_port import Accepted
from ledger.log.recovery import replay
from ledger.log.writer.writer import Writer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PODS = 1_000
POD_MEMORY = 8_000
LIMIT = PODS * POD_MEMORY
SHARED = accounts.universe("gpus")


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Clusters]:
    """A hub and an edge."""
    async with clusters(tmp_path) as made:
        yield made


@pytest.fixture
async def services(
    two: Clusters, tmp_path: Path
) -> AsyncIterator[tuple[ServiceProcess, ServiceProcess]]:
    """The service of each cluster, ready."""
    monitor = f"--nats-monitor={two.hub.monitor_url}"
    near = ("--cluster=west", f"--nats={two.hub.url}", monitor)
    far = ("--cluster=east", f"--nats={two.edge.url}", f"--nats-domain={DOMAIN}", monitor)
    west, east = ServiceProcess(tmp_path / "west", *near), ServiceProcess(tmp_path / "east", *far)
    try:
        # Not in this thread: the link between them runs in its event loop.
        await asyncio.to_thread(west.start)
        await asyncio.to_thread(east.start)
        yield west, east
    finally:
        for service in (west, east):
            if service.process is not None:
                service.kill()


async def limit(log: JetStreamLog) -> None:
    """Limit the namespace `team` of both clusters together."""
    nonces = (f"test-{number}" for number in itertools.count())
    writer = Writer(
        log, name="test", now=lambda: time.time_ns() // 1_000, nonces=lambda: next(nonces)
    )
    await writer.open()
    running = asyncio.create_task(writer.run())
    limits = {"limits.nvidia.com/gpumem": LIMIT}
    covers = ("east/team", "west/team")
    assert isinstance(await writer.submit(commands.SetLimits(SHARED, covers, limits)), Accepted)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class Clients:
    """Clients of one service that create pods, with a pause, until the shared limit is reached."""

    def __init__(self, service: ServiceProcess, count: int = 4) -> None:
        self.admitted: set[str] = set()
        self.unavailable = 0
        self.slowest = 0.0
        self.pause = 0.1
        self._service = service
        self._tasks = [asyncio.create_task(self._create(number)) for number in range(count)]

    async def full(self) -> None:
        """Go on without a pause, until each client got a denial at the limit."""
        self.pause = 0.0
        async with asyncio.timeout(120):
            await asyncio.gather(*self._tasks)

    async def grown(self, by: int) -> None:
        """Wait until so many more were admitted."""
        wanted = len(self.admitted) + by
        async with asyncio.timeout(60):
            while len(self.admitted) < wanted:  # noqa: ASYNC110 - another task grows the set
                await asyncio.sleep(0.01)

    async def _create(self, client: int) -> None:
        async with self._service.client() as http:
            for number in itertools.count():
                review = creation(f"pod-{client}-{number}")
                began = time.monotonic()
                allowed, message = await answer(http, review)
                self.slowest = max(self.slowest, time.monotonic() - began)
                if allowed:
                    self.admitted.add(review["request"]["object"]["metadata"]["uid"])
                elif Reason.LEDGER_UNAVAILABLE in message:
                    self.unavailable += 1
                else:
                    assert Reason.UNIVERSE_EXCEEDED in message, message
                    return
                await asyncio.sleep(self.pause)


async def answer(http: httpx2.AsyncClient, review: dict) -> tuple[bool, str]:
    """Post a review; return whether it was allowed, and the message."""
    posted = await http.post("/admission/validate", json=review)
    assert posted.status_code == 200, posted.text
    response = posted.json()["response"]
    return response["allowed"], response.get("status", {}).get("message", "")


async def test_two_clusters_share_a_limit_over_a_link_that_breaks_under_load(
    two: Clusters, services: tuple[ServiceProcess, ServiceProcess]
) -> None:
    west, east = services
    log = await JetStreamLog.connect(settings_for(two.hub))
    await limit(log)
    creating = Clients(west), Clients(east)
    for break_it in (two.between.cut, two.between.stall):
        for clients in creating:
            await clients.grown(10)
        await break_it()
        await asyncio.to_thread(east.wait_for, "ledger", ok=False)
        await two.between.restore()
        await asyncio.to_thread(east.wait_for, "ledger", ok=True)
    await asyncio.gather(*(clients.full() for clients in creating))
    state = await replay.open_state(log)
    await log.close()
    held = {
        hold.uid
        for namespace in state.namespaces.values()
        for entry in namespace.entries.values()
        for hold in entry.holds
    }
    assert creating[0].admitted | creating[1].admitted <= held
    assert state.used[state.accounts[SHARED].lines["limits.nvidia.com/gpumem"]] == LIMIT
    assert min(len(clients.admitted) for clients in creating) >= 20
    assert max(clients.slowest for clients in creating) < 10


async def test_a_cut_off_cluster_reports_it_and_the_others_go_on(
    two: Clusters, services: tuple[ServiceProcess, ServiceProcess]
) -> None:
    west, east = services
    log = await JetStreamLog.connect(settings_for(two.hub))
    await limit(log)
    await log.close()
    async with west.client() as near, east.client() as far:
        assert (await answer(far, creation("before")))[0]
        await two.between.cut()
        # Requests at the moment of the cut get no answer; later ones get the reason.
        async with asyncio.timeout(15):
            reason = await asyncio.to_thread(east.wait_for, "ledger", ok=False)
            while "domain hub is out of reach" not in reason:
                reason = await asyncio.to_thread(east.wait_for, "ledger", ok=False)
        assert f"127.0.0.1:{two.edge.port}" in reason
        async with asyncio.timeout(9):
            allowed, message = await answer(far, creation("during"))
        assert not allowed
        assert str(Reason.LEDGER_UNAVAILABLE) in message
        assert "domain hub is out of reach" in message
        assert (await answer(near, creation("during")))[0]
        await two.between.restore()
        async with asyncio.timeout(10):
            while not (await answer(far, creation("after")))[0]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)


async def test_a_service_that_starts_without_the_link_begins_when_it_is_there(
    two: Clusters, tmp_path: Path
) -> None:
    await two.between.cut()
    service = ServiceProcess(tmp_path / "east", f"--nats={two.edge.url}", f"--nats-domain={DOMAIN}")
    service.start(ready=False)
    try:
        reason = ""
        while DOMAIN not in reason:
            reason = await asyncio.to_thread(service.wait_for, "ledger", ok=False)
        assert "domain hub is out of reach" in reason
        async with service.client() as client:
            allowed, message = await answer(client, creation("early"))
        assert (allowed, "domain hub is out of reach" in message) == (False, True)
        await two.between.restore()
        await asyncio.to_thread(service.wait_for, "ledger", ok=True)
        async with service.client() as client:
            assert (await answer(client, creation("now")))[0]
    finally:
        service.kill()


async def test_an_edge_whose_own_jetstream_has_the_log_refuses_to_serve(
    two: Clusters, tmp_path: Path
) -> None:
    forgotten = await JetStreamLog.connect(settings_for(two.edge))
    await forgotten.open(create=True)
    await forgotten.close()
    service = ServiceProcess(tmp_path / "east", f"--nats={two.edge.url}", f"--nats-domain={DOMAIN}")
    service.start(ready=False)
    try:
        reason = ""
        while "LEDGER-main" not in reason:
            reason = await asyncio.to_thread(service.wait_for, "ledger", ok=False)
        assert "in domain edge" in reason
        assert "nats stream rm" in reason
    finally:
        service.kill()
