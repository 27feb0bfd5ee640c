"""Three replicas on one log against one, at the same load: what the others cost in time.

Every replica has a writer, bids to be preferred, and forwards its commands to the preferred one.
"""

import asyncio
import tempfile
from pathlib import Path

import msgspec

from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.embedded.server_files import ServerAddress
from ledger.log.peers.forwarding import CommandServer, ForwardingLedger
from ledger.log.peers.lease import Lease
from ledger.runtime import gc_tuning
from tests.bench.harness import ledgers
from tests.bench.harness.fresh_process import fresh, percentile, start, wait_for_go
from tests.bench.harness.results import Goal, Result, result
from tests.bench.load.fixed_rate_load import NAMESPACES, FixedRateLoad
from tests.bench.measurements import core

SHARE = 0.25


def run(quick: bool) -> list[Result]:
    """Measure one replica's maximum, then one and three of them at a quarter of it."""
    seconds = 3.0 if quick else 10.0
    most = fresh(core.measure, clients=2_000, pairs=15)["commands_per_second"]
    load = SHARE * most
    alone = fresh(measure, replicas=1, per_second=load, seconds=seconds)
    together = fresh(measure, replicas=3, per_second=load, seconds=seconds)
    return [
        result(
            "p99 of three replicas on one log",
            together["p99"] * 1e3,
            "ms",
            baseline=alone["p99"] * 1e3,
            goal=Goal(3, "most", "ratio"),
            note=f"{load:,.0f} commands/s in all, a quarter of one replica's maximum;"
            f" {together['refused']:.0f} of {together['answered']:.0f} were refused;"
            " baseline: one replica at the same load",
        )
    ]


async def measure(replicas: int, per_second: float, seconds: float) -> dict[str, float]:
    """Load replicas at the same time; return the times of the slowest."""
    with tempfile.TemporaryDirectory() as directory:
        async with EmbeddedServer(EmbeddedSettings(store=Path(directory))) as server:
            async with (
                ledgers.log_at(server.address) as log,
                ledgers.writer_on(log) as writer,
            ):
                await ledgers.set_limits(writer, NAMESPACES)
            address = msgspec.to_builtins(server.address)
            share = per_second / replicas
            running = [
                start(replica, address=address, number=number, per_second=share, seconds=seconds)
                for number in range(replicas)
            ]
            for process in running:
                await asyncio.to_thread(process.wait_ready)
            for process in running:
                process.go()
            reports = [await asyncio.to_thread(process.result) for process in running]
    return {
        "p99": max(report["p99"] for report in reports),
        "refused": sum(report["refused"] for report in reports),
        "answered": sum(report["answered"] for report in reports),
    }


async def replica(
    address: dict[str, str], number: int, per_second: float, seconds: float
) -> dict[str, float]:
    """Run one replica under load after `wait_for_go`."""
    async with (
        ledgers.log_at(msgspec.convert(address, ServerAddress)) as log,
        ledgers.writer_on(log) as writer,
    ):
        owner = Lease(log.connection, log.names, writer=writer.name)
        served = CommandServer(log.connection, log.names, writer=writer.name, local=writer)
        await owner.start()
        await served.start()
        forwarder = ForwardingLedger(log.connection, log.names, preference=owner, local=writer)
        gc_tuning.freeze_existing()
        await wait_for_go()
        pace = FixedRateLoad(forwarder, per_second, client=number)
        await pace.run(seconds)
        await served.stop()
        await owner.stop()
    return {
        "p99": percentile(pace.seconds, 0.99),
        "refused": pace.refused,
        "answered": len(pace.seconds),
    }
