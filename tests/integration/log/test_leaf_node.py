"""A log in another JetStream domain, used across a leaf node whose link breaks."""

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from support.servers.leaf_node import DOMAIN, Clusters, clusters
from support.servers.nats_servers import settings_for

from ledger.core.model import accounts, commands
from ledger.core.model.denials import Denial, Reason
from ledger.log import records
from ledger.log.jetstream.jetstream_domain import Captured
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.ledger_port import Accepted, Ledger
from ledger.log.log_port import Lost, PositionTaken
from ledger.log.peers.forwarding import CommandServer, ForwardingLedger
from ledger.log.peers.lease import Lease, LeaseSettings
from ledger.log.recovery import replay
from ledger.log.writer.writer import Writer
from ledger.log.writer.writer_settings import WriterSettings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

GPU = "nvidia.com/gpu"
LIMIT = 40
PAUSE_SECONDS = 0.1
_names = itertools.count(1)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Clusters]:
    """A hub and an edge of the test's own."""
    async with clusters(tmp_path) as made:
        yield made


async def edge_log(two: Clusters, **changes: Any) -> JetStreamLog:
    """Connect to the edge's server, for the log in the hub's domain."""
    hub: dict[str, Any] = {"domain": DOMAIN, "monitor_urls": (two.hub.monitor_url,)}
    return await JetStreamLog.connect(settings_for(two.edge, **(hub | changes)))


@contextlib.asynccontextmanager
async def writing(log: JetStreamLog, **changes: object) -> AsyncIterator[Writer]:
    """Run a writer on an opened log until the block ends."""
    name = f"w{next(_names)}"
    nonces = (f"{name}-{number}" for number in itertools.count())
    writer = Writer(
        log,
        name=name,
        now=lambda: time.time_ns() // 1_000,
        nonces=lambda: next(nonces),
        settings=WriterSettings(**changes),  # type: ignore[arg-type]
    )
    await writer.open()
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def limits(gpus: int = LIMIT) -> commands.SetLimits:
    account = accounts.quota("c1", "red", "main")
    return commands.SetLimits(account, ("c1/red",), {f"requests.{GPU}": gpus})


def reserve(name: str) -> commands.Reserve:
    return commands.Reserve("c1/red", f"pods/{name}", f"uid-{name}", {GPU: 1})


def release(name: str) -> commands.Refute:
    return commands.Refute("c1/red", f"pods/{name}", f"uid-{name}", commands.CREATE)


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (the condition has no event)
            await asyncio.sleep(0.005)


async def clear(writer: Ledger, command: commands.AnyCommand) -> bool:
    """Ask again, as often as needed, until it is clear whether it was accepted."""
    while True:
        answer = await writer.submit(command)
        if isinstance(answer, Accepted):
            return True
        if answer.reason is not Reason.LEDGER_UNAVAILABLE:
            return False
        await asyncio.sleep(0.02)


class Load:
    """Workers that reserve and give back on one replica; `held` has what they have not."""

    def __init__(self, writer: Ledger, prefix: str, workers: int = 16) -> None:
        self.held: set[str] = set()
        self.admitted = self.refused = 0
        self._ended = False
        self._tasks = [
            asyncio.create_task(self._work(writer, f"{prefix}{number}"))
            for number in range(workers)
        ]

    async def end(self) -> None:
        """Let every worker finish what it is at."""
        self._ended = True
        async with asyncio.timeout(60):
            await asyncio.gather(*self._tasks)

    async def _work(self, writer: Ledger, prefix: str) -> None:
        mine: deque[str] = deque()
        for number in itertools.count():
            if self._ended:
                return
            name = f"{prefix}-{number}"
            admitted = await clear(writer, reserve(name))
            if admitted:
                self.admitted += 1
                self.held.add(name)
                mine.append(name)
            else:
                self.refused += 1
            # A writer that is farther away would lose every race against one that never rests.
            await asyncio.sleep(PAUSE_SECONDS)
            if len(mine) > 1 or (mine and not admitted):
                gone = mine.popleft()
                assert await clear(writer, release(gone))
                self.held.discard(gone)


def _more_than_now(loads: list[Load], admitted: int = 0) -> Callable[[], bool]:
    """Return whether each load will have admitted so many more than now."""
    wanted = [load.admitted + admitted for load in loads]
    return lambda: all(load.admitted > count for load, count in zip(loads, wanted, strict=True))


@pytest.fixture
async def opened(two: Clusters) -> AsyncIterator[tuple[JetStreamLog, JetStreamLog]]:
    """The log as the hub and as the edge reach it."""
    near = await JetStreamLog.connect(settings_for(two.hub))
    far = await edge_log(two, deadline=2.0)
    await near.open(create=True)
    await far.open(create=False)
    yield near, far
    await near.close()
    await far.close()


async def test_no_record_is_lost_and_no_limit_exceeded_while_the_link_breaks(
    two: Clusters, opened: tuple[JetStreamLog, JetStreamLog]
) -> None:
    used: list[int] = []
    near, far = opened
    async with writing(near) as hub, writing(far) as edge:
        assert isinstance(await hub.submit(limits()), Accepted)
        hub.subscribe(lambda _: used.append(sum(hub.state.used)))
        edge.subscribe(lambda _: used.append(sum(edge.state.used)))
        loads = [Load(hub, "hub"), Load(edge, "edge")]
        for break_it in (two.between.cut, two.between.cut, two.between.stall, two.between.cut):
            await until(_more_than_now(loads, 20))
            await break_it()
            await until(lambda: edge.unavailable is not None)
            await until(_more_than_now(loads[:1]))
            await two.between.restore()
            await until(lambda: edge.unavailable is None)
        await asyncio.gather(*(load.end() for load in loads))
    assert max(used) == LIMIT
    assert all(load.refused for load in loads)
    state = await replay.open_state(near)
    entries = state.namespaces["c1/red"].entries
    assert {key.removeprefix("pods/") for key in entries} == loads[0].held | loads[1].held
    assert sum(state.used) == len(entries)


async def test_the_edge_names_the_cut_link_and_resumes_when_it_is_back(
    two: Clusters, opened: tuple[JetStreamLog, JetStreamLog]
) -> None:
    near, far = opened
    quick = {"command_seconds_max": 0.5, "outage_seconds": 1.0}
    async with writing(near) as hub, writing(far, **quick) as edge:
        assert isinstance(await hub.submit(limits()), Accepted)
        await two.between.cut()
        denied = await edge.submit(reserve("during"))
        assert isinstance(denied, Denial)
        assert (denied.reason, denied.transient) == (Reason.LEDGER_UNAVAILABLE, True)
        assert f"127.0.0.1:{two.edge.port}" in denied.message
        assert "domain hub is out of reach" in denied.message
        assert "leaf-node connection" in denied.message
        assert isinstance(await hub.submit(reserve("meanwhile")), Accepted)
        await two.between.restore()
        await until(lambda: edge.unavailable is None, 10)
        assert isinstance(await edge.submit(reserve("after")), Accepted)
        assert set(edge.state.namespaces["c1/red"].entries) == {"pods/meanwhile", "pods/after"}


async def test_a_stalled_link_is_reported_within_the_deadline_of_a_review(
    two: Clusters, opened: tuple[JetStreamLog, JetStreamLog]
) -> None:
    near, far = opened
    async with writing(near) as hub, writing(far, command_seconds_max=2.0) as edge:
        assert isinstance(await hub.submit(limits()), Accepted)
        await two.between.stall()
        async with asyncio.timeout(9):
            denied = await edge.submit(reserve("during"))
        assert isinstance(denied, Denial)
        assert denied.reason is Reason.LEDGER_UNAVAILABLE
        assert f"127.0.0.1:{two.edge.port}" in denied.message
        await two.between.restore()
        assert await clear(edge, reserve("during"))


async def test_an_owner_beyond_the_link_decides_until_the_link_is_cut(
    two: Clusters, opened: tuple[JetStreamLog, JetStreamLog]
) -> None:
    near, far = opened
    fast = LeaseSettings(renew_seconds=0.1, lease_seconds=2)
    async with writing(near) as hub, writing(far) as edge:
        bids = [
            Lease(log.connection, log.names, writer=writer.name, settings=fast)
            for log, writer in ((far, edge), (near, hub))
        ]
        served = CommandServer(far.connection, far.names, writer=edge.name, local=edge)
        forwarder = ForwardingLedger(near.connection, near.names, preference=bids[1], local=hub)
        await served.start()
        for bid in bids:
            await bid.start()
        await until(lambda: bids[1].owner == edge.name)
        assert isinstance(await hub.submit(limits()), Accepted)
        assert isinstance(await forwarder.submit(reserve("one")), Accepted)
        assert await written_by(near) == edge.name
        await two.between.cut()
        async with asyncio.timeout(20):
            assert isinstance(await forwarder.submit(reserve("two")), Accepted)
        assert await written_by(near) == hub.name
        await until(lambda: bids[1].is_owner and bids[0].owner is None)
        await two.between.restore()
        await until(lambda: bids[0].owner == hub.name)
        for bid in bids:
            await bid.stop()
        await served.stop()


async def written_by(log: JetStreamLog) -> str:
    """Return the writer of the newest record."""
    payload = await log.get((await log.extent()).last)
    assert payload is not None
    return records.decode(payload)[0].writer


async def test_a_stream_of_the_edges_own_on_the_ledgers_subjects_is_refused(two: Clusters) -> None:
    hub = await JetStreamLog.connect(settings_for(two.hub))
    await hub.open(create=True)
    forgotten = await JetStreamLog.connect(settings_for(two.edge))
    await forgotten.open(create=True)
    far = await edge_log(two)
    with pytest.raises(Captured, match=r"LEDGER-main.* in domain edge.* remove them"):
        await far.open(create=False)
    assert await hub.append(b"one", 0) == 1
    with pytest.raises((Lost, PositionTaken)):
        await far.append(b"two", 0)
    for log in (hub, forgotten, far):
        await log.close()


async def test_a_record_that_another_domain_took_is_not_taken_for_stored(two: Clusters) -> None:
    forgotten = await JetStreamLog.connect(settings_for(two.edge))
    await forgotten.open(create=True)
    far = await edge_log(two)
    with pytest.raises(Lost, match="in domain edge instead of hub"):
        await far.append(b"astray", 0)
    await forgotten.close()
    await far.close()


@pytest.mark.parametrize("jetstream", ["domain: edge", "", None], ids=["domain", "plain", "none"])
async def test_the_edge_may_have_jetstream_of_its_own_or_none(
    tmp_path: Path, jetstream: str | None
) -> None:
    async with clusters(tmp_path, edge_jetstream=jetstream) as two:
        log = await edge_log(two)
        await log.open(create=True)
        assert await log.append(b"one", 0) == 1
        durability = await log.durability()
        assert (durability.server_version.split(".")[0], durability.sync_always) == ("2", True)
        await log.close()


async def test_a_client_of_the_hub_may_name_the_hubs_domain(two: Clusters) -> None:
    log = await JetStreamLog.connect(settings_for(two.hub, domain=DOMAIN))
    await log.open(create=True)
    assert await log.append(b"one", 0) == 1
    await log.close()
