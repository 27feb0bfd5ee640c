"""How far the projection is behind the log while commands are decided at a fixed rate."""

import asyncio
import sqlite3
import tempfile
import time
from collections import deque
from pathlib import Path

import msgspec

from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.embedded.server_files import ServerAddress
from ledger.log.records import Record
from projections.projector import projector
from projections.store.store_writer import Store
from tests.bench.harness import ledgers
from tests.bench.harness.fresh_process import fresh, percentile, start, wait_for_go
from tests.bench.harness.results import Result, result
from tests.bench.load.fixed_rate_load import NAMESPACES, FixedRateLoad

PER_SECOND = 5_000
LOOK_SECONDS = 0.05


def run(quick: bool) -> list[Result]:
    """Measure for a while."""
    numbers = fresh(measure, seconds=3.0 if quick else 15.0)
    return [
        result(
            "projection behind the log, p99",
            numbers["seconds"],
            "s",
            note=f"while {PER_SECOND:,} commands/s are decided; {numbers['records']:.0f} records;"
            " the projector is a process of its own, as in the service",
        ),
    ]


async def measure(seconds: float) -> dict[str, float]:
    """Load a writer and look again and again how far the projection is."""
    with tempfile.TemporaryDirectory() as directory:
        async with (
            EmbeddedServer(EmbeddedSettings(store=Path(directory))) as server,
            ledgers.log_at(server.address) as log,
            ledgers.writer_on(log) as writer,
        ):
            await ledgers.set_limits(writer, NAMESPACES)
            address = msgspec.to_builtins(server.address)
            file = f"{directory}/projection.sqlite"
            projecting = start(project, address=address, path=file)
            await asyncio.to_thread(projecting.wait_ready)
            behind = ProjectionLag(file)
            writer.subscribe(behind.stored)
            looking = asyncio.create_task(behind.look())
            await FixedRateLoad(writer, PER_SECOND).run(seconds)
            looking.cancel()
            projecting.go()
            await asyncio.to_thread(projecting.result)
    return {
        "seconds": percentile(behind.seconds, 0.99),
        "records": percentile(behind.records, 0.99),
    }


class ProjectionLag:
    """Looks how much of what was stored is not projected yet."""

    def __init__(self, file: str) -> None:
        self._file = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        self._stored: deque[tuple[int, float]] = deque()
        self.seconds: list[float] = []
        self.records: list[float] = []

    def stored(self, record: Record) -> None:
        """Remember when a record was stored."""
        self._stored.append((record.position, time.perf_counter()))

    async def look(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            (position,) = self._file.execute("SELECT max(position) FROM records").fetchone()
            while self._stored and self._stored[0][0] <= position:
                self._stored.popleft()
            oldest = self._stored[0][1] if self._stored else time.perf_counter()
            self.records.append(len(self._stored))
            self.seconds.append(time.perf_counter() - oldest)


async def project(address: dict[str, str], path: str) -> dict[str, float]:
    """Project until `wait_for_go` returns, ready when everything older is projected."""
    async with (
        ledgers.log_at(msgspec.convert(address, ServerAddress)) as log,
        await Store.open(Path(path)) as store,
    ):
        await projector.replay(log, store)
        following = asyncio.create_task(projector.run(log, store))
        await wait_for_go()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    return {}
