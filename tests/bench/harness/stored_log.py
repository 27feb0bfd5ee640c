"""Stored log: what is measured on a prepared store: replay, restart, memory, projection.

Each function is for a process of its own. `made` is what `long_log.prepare` returned.
"""

import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from ledger.core.model.state import State
from ledger.log import records
from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.embedded.server_files import ServerAddress
from ledger.log.recovery.replay import catch_up
from ledger.log.writer.writer import Writer
from ledger.runtime import gc_tuning
from projections.projector import projector
from projections.queries.event_history import history
from projections.queries.holders import holders
from projections.queries.moments import parse, resolve
from projections.queries.query_scope import QueryScope
from projections.queries.quota_usage import usage
from projections.store.readers import ProjectionView, Readers
from projections.store.store_writer import Store
from tests.bench.harness import ledgers, process_tree
from tests.bench.harness.bench_service import BenchService
from tests.bench.harness.process_memory import forget_peak, peak, resident, settled

QUESTIONS: Final = 25


async def replay(store: str, made: dict[str, float]) -> dict[str, float]:
    """Fold the whole log as a start without a snapshot does, then once more with a stopwatch."""
    async with EmbeddedServer(EmbeddedSettings(store=Path(store))) as server:
        async with ledgers.log_at(server.address) as log:
            started, computed = time.perf_counter(), time.process_time()
            await catch_up(log, State(), int(made["last"]))
            seconds, computed = time.perf_counter() - started, time.process_time() - computed
        folding = await _fold(server.address, int(made["last"]))
    events = made["events"]
    return {
        "per_second": events / seconds,
        "computed": computed / events * 1e6,
        "folding": folding / events * 1e6,
    }


async def _fold(address: ServerAddress, last: int) -> float:
    """Return the processor seconds spent in the fold alone."""
    state, spent = State(), 0.0
    async with ledgers.log_at(address) as log:
        async for batch in log.read(1, last):
            started = time.thread_time()
            for entry in batch:
                records.fold(state, entry.position, entry.payload)
            spent += time.thread_time() - started
    return spent


async def reopen(store: str) -> dict[str, float]:
    """Open a writer as a starting service does.

    `computed` are the processor seconds of this process and of nats-server. Bytes are the growth of
    this process: at the end, and at the peak.
    """
    async with EmbeddedServer(EmbeddedSettings(store=Path(store))) as server:
        empty = settled()
        forget_peak()
        started, computed = time.perf_counter(), process_tree.computed() + time.process_time()
        async with ledgers.log_at(server.address) as log:
            writer = Writer(log, name="bench", now=lambda: 0, nonces=lambda: "")
            with gc_tuning.freeze_afterwards():
                await writer.open()
            seconds = time.perf_counter() - started
            computed = process_tree.computed() + time.process_time() - computed
            return {
                "seconds": seconds,
                "computed": computed,
                "bytes": resident() - empty,
                "peak": peak() - empty,
            }


async def weigh(store: str, made: dict[str, float], quotas: int, holds: int) -> dict[str, float]:
    """Return how much the process grows with every account and every hold."""
    state = State()
    async with (
        EmbeddedServer(EmbeddedSettings(store=Path(store))) as server,
        ledgers.log_at(server.address) as log,
    ):
        empty = settled()
        await catch_up(log, state, int(made["accounts_at"]))
        with_accounts = settled()
        await catch_up(log, state, int(made["holds_at"]))
        with_holds = settled()
    return {
        "account": (with_accounts - empty) / quotas,
        "hold": (with_holds - with_accounts) / holds,
    }


async def project(store: str, made: dict[str, float]) -> dict[str, float]:
    """Build a projection of the whole log and ask it about its past.

    `computed` are the processor seconds of an event, `bytes` those of the file for an event.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "projection.sqlite"
        async with (
            EmbeddedServer(EmbeddedSettings(store=Path(store))) as server,
            ledgers.log_at(server.address) as log,
            await Store.open(path) as file,
        ):
            started, computed = time.perf_counter(), time.process_time()
            await projector.replay(log, file, int(made["last"]))
            seconds, computed = time.perf_counter() - started, time.process_time() - computed
        size = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
        async with Readers(path) as readers, readers.view() as view:
            question = await _ask(view)
    return {
        "seconds": seconds,
        "per_second": made["events"] / seconds,
        "computed": computed / made["events"],
        "bytes": size / made["events"],
        "question": question,
    }


async def _ask(view: ProjectionView) -> float:
    """Return the median, over moments, of the seconds that the slowest question took."""
    source, slowest = random.Random(3), []
    for _ in range(QUESTIONS):
        moment = parse(str(source.randint(1, view.head.position)))
        scope = QueryScope(f"team-{source.randrange(1_000)}", ledgers.CLUSTER)
        taken = []
        for question in (
            lambda at, where: usage(view, at, where, limit=500),
            lambda at, where: holders(view, at, where, limit=500),
            lambda at, where: history(view, at, at + 1_000, where, limit=500),
        ):
            started = time.perf_counter()
            await question(await resolve(view, moment), scope)
            taken.append(time.perf_counter() - started)
        slowest.append(max(taken))
    return statistics.median(slowest)


def seconds_to_ready(store: Path) -> float:
    """Return the seconds from the start of the service until it is ready."""
    service = BenchService(store)
    try:
        return service.wait_ready()
    finally:
        service.stop()
