"""A million events: replaying them, restarting on them, projecting them, asking about their past.

All of it is measured on one store, made once by the run.
"""

import os
import random
import statistics
import tempfile
import time
from pathlib import Path

from ledger.core.model.state import State
from ledger.log import records
from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.embedded.server_files import ServerAddress
from ledger.log.recovery.replay import catch_up
from ledger.log.writer.writer import Writer
from ledger.runtime import gc_tuning
from projections.projector.projector import Projector
from projections.queries.event_history import history
from projections.queries.holders import holders
from projections.queries.moments import parse, resolve
from projections.queries.query_scope import QueryScope
from projections.queries.quota_usage import usage
from projections.store.readers import ProjectionView, Readers
from projections.store.store_writer import Store
from tests.bench.harness import ledgers
from tests.bench.harness.bench_service import BenchService
from tests.bench.harness.fresh_process import fresh, median
from tests.bench.harness.results import Goal, Result, result
from tests.bench.objects import long_log

QUESTIONS = 25


def run(quick: bool) -> list[Result]:
    """Make the history and measure on it."""
    rounds, share = (1, 10) if quick else (3, 1)
    quotas, holds, events = 100_000 // share, 200_000 // share, 1_000_000 // share
    with tempfile.TemporaryDirectory() as store:
        made = fresh(long_log.prepare, store=store, quotas=quotas, holds=holds, events=events)
        replays = median([fresh(replay, store=store, made=made) for _ in range(rounds)])
        opened = median([fresh(reopen, store=store) for _ in range(rounds)])
        memory = fresh(weigh, store=store, made=made, quotas=quotas, holds=holds)
        projected = fresh(project, store=store, made=made)
        executed = statistics.median(_seconds_to_ready(Path(store)) for _ in range(rounds))
    size = f"{events:,} events, {quotas:,} accounts, {holds:,} holds"
    return [
        *_replay_results(replays, size),
        *_restart_results(opened["seconds"], executed, size),
        *_memory_results(memory),
        *_projection_results(projected),
    ]


def _replay_results(numbers: dict[str, float], size: str) -> list[Result]:
    return [
        result(
            "verified replay",
            numbers["per_second"],
            "events/s",
            goal=Goal(300_000, "least"),
            note=f"{size}; the process computes {numbers['computed']:.2f} µs per event,"
            f" {numbers['folding']:.2f} of them in the fold",
        ),
        result("verified replay, the fold alone", 1e6 / numbers["folding"], "events/s"),
    ]


def _restart_results(opened: float, executed: float, size: str) -> list[Result]:
    return [
        result(
            "restart, from NATS connected to ready",
            opened,
            "s",
            goal=Goal(1.5, "most"),
            note=f"{size}; the snapshot is 2 % of the events old",
        ),
        result("restart, from exec to ready", executed, "s", goal=Goal(3, "most")),
    ]


def _memory_results(memory: dict[str, float]) -> list[Result]:
    return [
        result("memory of an account with three lines", memory["account"], "bytes"),
        result("memory of a hold", memory["hold"], "bytes"),
    ]


def _projection_results(numbers: dict[str, float]) -> list[Result]:
    return [
        result("projection catching up", numbers["per_second"], "events/s"),
        result(
            "question as of a moment in the past",
            numbers["question"] * 1e3,
            "ms",
            goal=Goal(50, "most"),
            note="median of the slowest of usage, holders and history at one moment",
        ),
    ]


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
    """Open a writer as a starting service does."""
    async with EmbeddedServer(EmbeddedSettings(store=Path(store))) as server:
        started = time.perf_counter()
        async with ledgers.log_at(server.address) as log:
            writer = Writer(log, name="bench", now=lambda: 0, nonces=lambda: "")
            await writer.open()
            gc_tuning.freeze_existing()
            return {"seconds": time.perf_counter() - started}


async def weigh(store: str, made: dict[str, float], quotas: int, holds: int) -> dict[str, float]:
    """Return how much the process grows with every account and every hold."""
    state = State()
    async with (
        EmbeddedServer(EmbeddedSettings(store=Path(store))) as server,
        ledgers.log_at(server.address) as log,
    ):
        empty = _resident()
        await catch_up(log, state, int(made["accounts_at"]))
        with_accounts = _resident()
        await catch_up(log, state, int(made["holds_at"]))
        with_holds = _resident()
    return {
        "account": (with_accounts - empty) / quotas,
        "hold": (with_holds - with_accounts) / holds,
    }


async def project(store: str, made: dict[str, float]) -> dict[str, float]:
    """Build a projection of the whole log and ask it about its past."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "projection.sqlite"
        async with (
            EmbeddedServer(EmbeddedSettings(store=Path(store))) as server,
            ledgers.log_at(server.address) as log,
            await Store.open(path) as file,
        ):
            started = time.perf_counter()
            projector = await Projector.resume(log, file)
            async for batch in log.read(1, int(made["last"])):
                await projector.project(batch)
            seconds = time.perf_counter() - started
        async with Readers(path) as readers, readers.view() as view:
            return {"per_second": made["events"] / seconds, "question": await _ask(view)}


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


def _seconds_to_ready(store: Path) -> float:
    service = BenchService(store)
    try:
        return service.wait_ready()
    finally:
        service.stop()


def _resident() -> int:
    gc_tuning.freeze_existing()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
