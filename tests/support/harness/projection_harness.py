"""Projection harness: a log from payloads, a projection from a log, and views at a position."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

from support.builders.decide_and_fold import record
from support.generators.allocated_workloads import allocated_workloads
from support.generators.random_commands import CLUSTER, random_commands

from ledger.core.model import commands
from ledger.core.model.state import State
from ledger.log.memory_log import MemoryLog, MemoryStore
from projections.projector import projector
from projections.store.digest import Digest, digest
from projections.store.readers import ProjectionView, Readers
from projections.store.store_writer import Store

START = 1_750_000_000_000_000
SECOND = 1_000_000


def log_of(payloads: Sequence[bytes]) -> MemoryLog:
    """Return a log that holds these records."""
    store = MemoryStore(exists=True)
    store.records = list(payloads)
    return MemoryLog(store)


def random_payloads(seed: int, count: int, *, group: int = 3) -> list[bytes]:
    """Return the records of random commands, one second apart, several commands in each."""
    return _payloads(seed, random_commands(seed, count), group)


def allocated_payloads(seed: int, count: int, *, group: int = 3) -> list[bytes]:
    """Return the records of commands about a root whose pods have devices."""
    return _payloads(seed, allocated_workloads(seed, count), group)


def _payloads(seed: int, several: Iterable[commands.AnyCommand], group: int) -> list[bytes]:
    state, payloads = State(), list[bytes]()
    made = [commands.RegisterCluster(CLUSTER, f"uid-{seed}"), *several]
    for start in range(0, len(made), group):
        time = START + len(payloads) * SECOND
        payload = record(state, made[start : start + group], time=time)
        if payload is not None:
            payloads.append(payload)
    return payloads


async def project(
    path: Path,
    log: MemoryLog,
    last: int | None = None,
    *,
    at_once: int = projector.EVENTS_PER_TRANSACTION,
    scratch: bool = False,
) -> None:
    """Bring a file up to a position of the log, as a process that starts and ends would.

    A transaction has at least `at_once` events. A rebuild writes a `scratch` file.
    """
    with patch.object(projector, "EVENTS_PER_TRANSACTION", at_once):
        async with await Store.open(path, scratch=scratch) as store:
            await projector.replay(log, store, last)


@asynccontextmanager
async def viewing(path: Path) -> AsyncIterator[ProjectionView]:
    """Open a view of a file for the block."""
    async with Readers(path) as readers, readers.view() as view:
        yield view


async def digest_of(path: Path, position: int | None = None) -> Digest:
    """Return the digest at a position, the file's own when None."""
    async with viewing(path) as view:
        return await digest(view, view.head.position if position is None else position)
