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
from tests.bench.harness.fresh_process import fresh, median, percentile, start, wait_for_go
from tests.bench.harness.results import Goal, Result, result
from tests.bench.load.fixed_rate_load import NAMESPACES, FixedRateLoad
from tests.bench.measurements import core

SHARE = 0.25


def run(quick: bool) -> list[Result]:
    """Measure one replica's maximum; then one and three at a quarter of it, in turn."""
    rounds, seconds = (1, 3.0) if quick else (3, 10.0)
    most = fresh(core.measure, clients=2_000, pairs=15)["commands_per_second"]
    load = {"per_second": SHARE * most, "seconds": seconds}
    alone, spread, owned = [], [], []
    for _ in range(rounds):
        alone.append(fresh(measure, replicas=1, **load))
        spread.append(fresh(measure, replicas=3, **load))
        owned.append(fresh(measure, replicas=3, to_owner=True, **load))
    single, shared, owner = median(alone), median(spread), median(owned)
    goal = Goal(2, "most", "ratio")
    return [
        result(
            "p99 of three replicas on one log",
            shared["p99"] * 1e3,
            "ms",
            baseline=single["p99"] * 1e3,
            goal=goal,
            note=f"{load['per_second']:,.0f} commands/s in all, a quarter of one replica's"
            f" maximum, to all replicas, which forward them;"
            f" {shared['refused']:.0f} of {shared['answered']:.0f} were refused;"
            " baseline: one replica at the same load",
        ),
        result(
            "the same, all commands to the owner",
            owner["p99"] * 1e3,
            "ms",
            baseline=single["p99"] * 1e3,
            goal=goal,
            note=f"{owner['refused']:.0f} of {owner['answered']:.0f} were refused",
        ),
    ]


async def measure(
    replicas: int, per_second: float, seconds: float, to_owner: bool = False
) -> dict[str, float]:
    """Load replicas at the same time, or only the preferred one; return the slowest's times."""
    with tempfile.TemporaryDirectory() as directory:
        async with EmbeddedServer(EmbeddedSettings(store=Path(directory))) as server:
            async with (
                ledgers.log_at(server.address) as log,
                ledgers.writer_on(log) as writer,
            ):
                await ledgers.set_limits(writer, NAMESPACES)
            address = msgspec.to_builtins(server.address)
            load = {
                "per_second": per_second if to_owner else per_second / replicas,
                "seconds": seconds,
                "to_owner": to_owner,
            }
            running = [
                start(replica, address=address, number=number, **load) for number in range(replicas)
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
    address: dict[str, str], number: int, per_second: float, seconds: float, to_owner: bool
) -> dict[str, float]:
    """Run one replica after `wait_for_go`, under load unless another replica has the load."""
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
        if owner.is_owner or not to_owner:
            await pace.run(seconds)
        else:
            await asyncio.sleep(seconds)
        await served.stop()
        await owner.stop()
    return {
        "p99": percentile(pace.seconds, 0.99) if pace.seconds else 0.0,
        "refused": pace.refused,
        "answered": len(pace.seconds),
    }
