"""Loaded replica: a replica of the service without HTTP, in a process of its own, under load.

It has all that the service has beside HTTP and a cluster: writer, leases, forwarding, append
notices, and its follower process with the projection.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.wiring import store_layout
from gpuledger.wiring.log_from_settings import LogServers
from ledger.log.embedded.server_files import ServerAddress
from ledger.log.writer.writer_observer import WriterObserver
from ledger.runtime import gc_tuning
from ledger.runtime.settings.settings import Settings
from tests.bench.harness import process_tree
from tests.bench.harness.fresh_process import percentile, wait_for_go
from tests.bench.harness.ledgers import CLUSTER, LOG_BYTES_MAX
from tests.bench.load.fixed_rate_load import FixedRateLoad

OPEN_SECONDS_MAX: Final = 60.0
WARM_UP_SECONDS: Final = 0.5

Rates = tuple[float, float]
"""Commands per second of a phase: those of the preferred replica, and those of each other one."""


async def loaded_replica(
    address: dict[str, str], store: str, number: int, seconds: float, phases: list[Rates]
) -> dict[str, float]:
    """Run replica `number` through phases of load, each after a `wait_for_go`.

    The result has the numbers of each phase, with its index as the prefix of their names.
    """
    numbers: dict[str, float] = {}
    async with _running(msgspec.convert(address, ServerAddress), store) as replica:
        gc_tuning.freeze_existing()
        for phase, (owner_rate, other_rate) in enumerate(phases):
            await wait_for_go()
            rate = owner_rate if replica.is_owner() else other_rate
            client = 256 * (2 * phase + 1) + number
            await _load(replica, rate, WARM_UP_SECONDS, client)
            measured = await _load(replica, rate, seconds, client + 256)
            numbers |= {f"{phase}.{name}": value for name, value in measured.items()}
        await wait_for_go()
    return numbers


async def _load(
    replica: LedgerReplica, per_second: float, seconds: float, client: int
) -> dict[str, float]:
    """Return the times to an answer, and the processor time of the replica and its child."""
    computed, below = time.process_time(), process_tree.computed()
    until = time.perf_counter() + seconds
    load = FixedRateLoad(replica, per_second, client=client)
    if per_second:
        await load.run(seconds)
    await asyncio.sleep(max(0.0, until - time.perf_counter()))
    return {
        "owner": float(replica.is_owner()),
        "p50": percentile(load.seconds, 0.5) if load.seconds else 0.0,
        "p99": percentile(load.seconds, 0.99) if load.seconds else 0.0,
        "refused": load.refused,
        "answered": len(load.seconds),
        "computed": time.process_time() - computed,
        "projection": process_tree.computed() - below,
    }


@contextlib.asynccontextmanager
async def _running(address: ServerAddress, store: str) -> AsyncIterator[LedgerReplica]:
    """Run a replica for the block, from the moment it has an owner to ask."""
    settings = Settings(
        store_dir=store,
        cluster=CLUSTER,
        nats=(address.url,),
        log_bytes_max=LOG_BYTES_MAX,
        log_level="error",
    )
    servers = LogServers((address.url,), address.user, address.password, ())
    replica = LedgerReplica(settings, servers, observer=WriterObserver())
    running = asyncio.create_task(replica.run())
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            await replica.opened.wait()
            while replica.owner is None or replica.owner.owner is None:  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0.05)
            while _projected(store) < replica.state.position:  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0.05)
        yield replica
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _projected(store: str) -> int:
    """Return the position of the projection in a store, -1 before its tables exist."""
    file = Path(store) / store_layout.PROJECTION
    try:
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            (position,) = connection.execute("SELECT max(position) FROM records").fetchone()
            return int(position or 0)
    except sqlite3.Error:
        return -1
