"""A million events: replaying them, restarting on them, projecting them, asking about their past.

All of it is measured on one store, made once by the run.
"""

import statistics
import tempfile
from pathlib import Path

from tests.bench.harness import stored_log
from tests.bench.harness.fresh_process import fresh, median
from tests.bench.harness.results import Goal, Result, result
from tests.bench.objects import long_log

WITH_SERVER = "of the writer's process and of nats-server, which sends the snapshot"


def run(quick: bool) -> list[Result]:
    """Make the history and measure on it."""
    rounds, share = (1, 10) if quick else (3, 1)
    quotas, holds, events = 100_000 // share, 200_000 // share, 1_000_000 // share
    with tempfile.TemporaryDirectory() as store:
        made = fresh(long_log.prepare, store=store, quotas=quotas, holds=holds, events=events)
        replays = median([fresh(stored_log.replay, store=store, made=made) for _ in range(rounds)])
        opened = median([fresh(stored_log.reopen, store=store) for _ in range(rounds)])
        memory = fresh(stored_log.weigh, store=store, made=made, quotas=quotas, holds=holds)
        projected = fresh(stored_log.project, store=store, made=made)
        executed = statistics.median(
            stored_log.seconds_to_ready(Path(store)) for _ in range(rounds)
        )
    size = f"{events:,} events, {quotas:,} accounts, {holds:,} holds"
    return [
        *_replay_results(replays, size),
        *_restart_results(opened, executed, size),
        *_memory_results(memory),
        *_projection_results(projected),
    ]


def _replay_results(numbers: dict[str, float], size: str) -> list[Result]:
    return [
        result(
            "verified replay",
            numbers["per_second"],
            "events/s",
            goal=Goal(160_000, "least"),
            note=size,
        ),
        result(
            "verified replay, processor time of an event",
            numbers["computed"],
            "µs",
            goal=Goal(1e6 / 160_000, "most"),
        ),
        result("verified replay, processor time of the fold", numbers["folding"], "µs"),
    ]


def _restart_results(opened: dict[str, float], executed: float, size: str) -> list[Result]:
    return [
        result(
            "restart, from NATS connected to ready",
            opened["seconds"],
            "s",
            goal=Goal(0.8, "most"),
            note=f"{size}; the snapshot is 2 % of the events old",
        ),
        result("restart, processor time of that", opened["computed"], "s", note=WITH_SERVER),
        result("restart, from exec to ready", executed, "s", goal=Goal(3, "most")),
    ]


def _memory_results(memory: dict[str, float]) -> list[Result]:
    return [
        result("memory of an account with three lines", memory["account"], "bytes"),
        result("memory of a hold", memory["hold"], "bytes"),
    ]


def _projection_results(numbers: dict[str, float]) -> list[Result]:
    return [
        result(
            "projection catching up", numbers["per_second"], "events/s", goal=Goal(60_000, "least")
        ),
        result("projection, processor time of an event", numbers["computed"] * 1e6, "µs"),
        result("projection file", numbers["bytes"], "bytes per event", goal=Goal(250, "most")),
        result(
            "question as of a moment in the past",
            numbers["question"] * 1e3,
            "ms",
            goal=Goal(50, "most"),
            note="median of the slowest of usage, holders and history at one moment",
        ),
    ]
