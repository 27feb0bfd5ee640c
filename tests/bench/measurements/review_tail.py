"""Tail of reviews at a fixed rate, with the store in memory and on the disk.

The baseline is the frozen stack at the same rate, which answers "allowed" without a ledger: its
tail is that of the load generator, of TLS and of two cores. Beside them, in turn, the disk's own
tail: appends to a file, each synced.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.frozen.permissive_webhook import permissive_webhook
from tests.bench.harness.bench_service import serving
from tests.bench.harness.fresh_process import fresh, median, percentile
from tests.bench.harness.results import Goal, Result, result
from tests.bench.measurements.https import prepare, review_numbers, visit

PER_SECOND: Final = 2_300
MEMORY: Final = Path("/dev/shm")
"""A file system in memory."""

APPEND_BYTES: Final = 16_384
"""About what a few reviews come to, with the checksums and indexes of nats-server."""

APPEND_SECONDS: Final = 0.005


def run(quick: bool) -> list[Result]:
    """Measure both stores and the disk in turn."""
    rounds, seconds = (1, 3) if quick else (3, 10)
    count = seconds * PER_SECOND
    samples: dict[Path | None, list[dict[str, float]]] = {MEMORY: [], None: []}
    floors, appends = [], []
    for _ in range(rounds):
        for place, measured in samples.items():
            with _store(place) as store, serving(store) as service:
                numbers = review_numbers(count)
                visit(service, store, review_numbers(count // 5, 1 << 28), PER_SECOND)
                measured.append(visit(service, store, numbers, PER_SECOND))
        with _store(MEMORY) as store, permissive_webhook(store) as baseline:
            floors.append(visit(baseline, store, review_numbers(count), PER_SECOND))
        with tempfile.TemporaryDirectory() as directory:
            appends.append(fresh(append, folder=directory, seconds=seconds))
    memory, disk = (median(samples[place]) for place in (MEMORY, None))
    return _results(memory, disk, median(floors), median(appends))


def _results(
    memory: dict[str, float],
    disk: dict[str, float],
    floor: dict[str, float],
    appends: dict[str, float],
) -> list[Result]:
    rate = f"at {PER_SECOND:,} reviews/s, store"
    return [
        _tail(f"p99 {rate} in memory", memory, floor, Goal(5, "most")),
        _tail(f"p99 {rate} on the disk", disk, floor, Goal(10, "most")),
        result(
            "p99 of a synced append to the disk",
            appends["p99"] * 1e3,
            "ms",
            note=f"p50 {appends['p50'] * 1e3:.2f} ms; {APPEND_BYTES:,} bytes,"
            f" {1 / APPEND_SECONDS:.0f}/s, nothing else running",
        ),
    ]


def _tail(name: str, measured: dict[str, float], floor: dict[str, float], goal: Goal) -> Result:
    note = (
        f"p50 {measured['p50'] * 1e3:.2f} ms; sent at fixed moments whether or not answers come;"
        f" the load generator is late by p99 {measured['late_p99'] * 1e3:.2f} ms, which counts;"
        f" the service computes {measured['served'] * 1e6:.0f} µs per review;"
        " baseline: the frozen stack answers allowed without a ledger"
    )
    return result(
        name, measured["p99"] * 1e3, "ms", baseline=floor["p99"] * 1e3, goal=goal, note=note
    )


@contextmanager
def _store(place: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=place) as directory:
        fresh(prepare, store=directory)
        yield Path(directory)


async def append(folder: str, seconds: int) -> dict[str, float]:
    """Append to a file and sync it, at a fixed rate."""
    data, taken = os.urandom(APPEND_BYTES), []
    file = os.open(Path(folder, "appended"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for _ in range(int(seconds / APPEND_SECONDS)):
        started = time.perf_counter()
        os.write(file, data)
        os.fdatasync(file)
        taken.append(time.perf_counter() - started)
        time.sleep(max(0.0, APPEND_SECONDS - taken[-1]))  # noqa: ASYNC251 (nothing else runs)
    os.close(file)
    return {"p50": percentile(taken, 0.5), "p99": percentile(taken, 0.99)}
