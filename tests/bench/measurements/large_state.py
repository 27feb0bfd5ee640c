"""A state with a million holds: restarting on it, and the memory that it takes."""

import tempfile

from tests.bench.harness import stored_log
from tests.bench.harness.fresh_process import fresh, median
from tests.bench.harness.results import Goal, Result, result
from tests.bench.measurements.history import WITH_SERVER
from tests.bench.objects import long_log


def run(quick: bool) -> list[Result]:
    """Make the store and measure on it."""
    rounds, share = (1, 10) if quick else (3, 1)
    quotas, holds, events = 100_000 // share, 1_000_000 // share, 1_300_000 // share
    with tempfile.TemporaryDirectory() as store:
        made = fresh(long_log.prepare, store=store, quotas=quotas, holds=holds, events=events)
        opened = median([fresh(stored_log.reopen, store=store) for _ in range(rounds)])
        memory = fresh(stored_log.weigh, store=store, made=made, quotas=quotas, holds=holds)
    size = f"{quotas:,} accounts, {holds:,} holds, {events:,} events"
    replayed = quotas * memory["account"] + holds * memory["hold"]
    return [
        result(
            "restart with 1 M holds, from NATS connected to ready",
            opened["seconds"],
            "s",
            goal=Goal(3, "most"),
            note=size,
        ),
        result("restart with 1 M holds, processor time", opened["computed"], "s", note=WITH_SERVER),
        result(
            "memory of a state with 1 M holds",
            replayed / 1e6,
            "MB",
            goal=Goal(700, "most"),
            note="made by a replay",
        ),
        result("the same, read from a snapshot", opened["bytes"] / 1e6, "MB"),
        result("the same, at the peak of the restart", opened["peak"] / 1e6, "MB"),
    ]
