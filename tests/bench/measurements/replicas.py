"""Three replicas on one log against one, at the same load: what the others cost.

Each replica is that of the service without HTTP, and projects the log. Either each replica gets a
third of the commands and forwards them to the preferred one, or the preferred one gets all, as in a
cluster.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.embedded.server_files import ServerAddress
from tests.bench.harness import ledgers
from tests.bench.harness.bench_service import MeasuredProcess
from tests.bench.harness.fresh_process import MeasuringProcess, fresh, median, start
from tests.bench.harness.results import Goal, Result, result
from tests.bench.load.fixed_rate_load import NAMESPACES
from tests.bench.load.loaded_replica import Rates, loaded_replica

REPLICAS: Final = 3
PER_SECOND: Final = 2_300
"""Commands of all replicas together, as many as the reviews of `review_tail`."""

MEMORY: Final = Path("/dev/shm")
"""A file system in memory, because the disk's own tail would be most of what is measured."""

PARTS: Final = ("owner", "followers", "projections", "nats")

_TO_OWNER: Final[Rates] = (PER_SECOND, 0.0)
_SPREAD: Final[Rates] = (PER_SECOND / REPLICAS, PER_SECOND / REPLICAS)

Numbers = dict[str, float]


def run(quick: bool) -> list[Result]:
    """Measure one and three replicas in turn."""
    rounds, seconds = (1, 2.0) if quick else (5, 4.0)
    alone, three = [], []
    for _ in range(rounds):
        alone.append(fresh(measure, replicas=1, seconds=seconds, phases=[_TO_OWNER]))
        three.append(
            fresh(measure, replicas=REPLICAS, seconds=seconds, phases=[_TO_OWNER, _SPREAD])
        )
    single = _of_phase(median(alone), 0)
    owned, spread = (_of_phase(median(three), phase) for phase in range(2))
    return [
        _tail("p99 of three replicas on one log", spread, single),
        _tail("the same, all commands to the owner", owned, single),
        _cost("processor time of a command, three replicas that forward", spread, single),
        _cost("processor time of a command, three replicas, to the owner", owned, single),
    ]


def _tail(name: str, measured: Numbers, single: Numbers) -> Result:
    return result(
        name,
        measured["p99"] * 1e3,
        "ms",
        baseline=single["p99"] * 1e3,
        goal=Goal(2, "most", "ratio"),
        note=f"{PER_SECOND:,} commands/s in all, the store in memory; p50"
        f" {measured['p50'] * 1e3:.2f} ms, of one replica {single['p50'] * 1e3:.2f} ms;"
        f" {measured['refused']:.0f} of {measured['answered']:.0f} were refused",
    )


def _cost(name: str, measured: Numbers, single: Numbers) -> Result:
    """Return the processor time of all processes together, and of each in the note."""
    parts = "; ".join(f"{part} {measured[part]:.0f} ({single[part]:.0f})" for part in PARTS)
    return result(
        name,
        sum(measured[part] for part in PARTS),
        "µs",
        baseline=sum(single[part] for part in PARTS),
        note=f"{parts}; in parentheses of one replica; with the load generator",
    )


def _of_phase(numbers: Numbers, phase: int) -> Numbers:
    prefix = f"{phase}."
    return {
        name.removeprefix(prefix): number
        for name, number in numbers.items()
        if name.startswith(prefix)
    }


async def measure(replicas: int, seconds: float, phases: list[Rates]) -> Numbers:
    """Load replicas phase by phase; return the slowest's times and the processor times."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        store = Path(directory)
        async with EmbeddedServer(EmbeddedSettings(store=store / "log")) as server:
            async with ledgers.log_at(server.address) as log, ledgers.writer_on(log) as writer:
                await ledgers.set_limits(writer, NAMESPACES)
            with _running(server.address, store, replicas, seconds, phases) as running:
                nats = MeasuredProcess(server.address.pid, "")
                await _ready(running)
                served = [await _served(nats, running) for _ in phases]
                for process in running:
                    process.go()
                reports = [await asyncio.to_thread(process.result) for process in running]
    return {
        f"{phase}.{name}": number
        for phase in range(len(phases))
        for name, number in _summary(
            [_of_phase(report, phase) for report in reports], served[phase]
        ).items()
    }


@contextmanager
def _running(
    address: ServerAddress, store: Path, replicas: int, seconds: float, phases: list[Rates]
) -> Iterator[list[MeasuringProcess]]:
    """Run replicas with a store of their own each, which end with the block."""
    folders = [store / f"replica-{number}" for number in range(replicas)]
    for folder in folders:
        folder.mkdir()
    running = [
        start(
            loaded_replica,
            address=msgspec.to_builtins(address),
            store=str(folder),
            number=number,
            seconds=seconds,
            phases=phases,
        )
        for number, folder in enumerate(folders)
    ]
    try:
        yield running
    finally:
        for process in running:
            process.end()


async def _ready(running: list[MeasuringProcess]) -> None:
    for process in running:
        await asyncio.to_thread(process.wait_ready)


async def _served(nats: MeasuredProcess, running: list[MeasuringProcess]) -> float:
    """Let all replicas go through a phase; return the processor seconds of the log server."""
    before = nats.computed()
    for process in running:
        process.go()
    await _ready(running)
    return nats.computed() - before


def _summary(reports: list[Numbers], served: float) -> Numbers:
    """Return the numbers of a phase, processor times in µs of a command."""
    commands = sum(report["answered"] for report in reports)

    def each(seconds: float) -> float:
        return 1e6 * seconds / commands

    return {
        "p50": max(report["p50"] for report in reports),
        "p99": max(report["p99"] for report in reports),
        "refused": sum(report["refused"] for report in reports),
        "answered": commands,
        "owner": each(sum(report["computed"] for report in reports if report["owner"])),
        "followers": each(sum(report["computed"] for report in reports if not report["owner"])),
        "projections": each(sum(report["projection"] for report in reports)),
        "nats": each(served),
    }
