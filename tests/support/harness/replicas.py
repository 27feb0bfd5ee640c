"""Replicas: writers on one log in memory, started and stopped as tests need them."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator

from ledger.log.memory_log import Faults, MemoryLog, MemoryStore
from ledger.log.writer.writer import Writer
from ledger.log.writer.writer_observer import WriterObserver
from ledger.log.writer.writer_settings import WriterSettings

_numbers = itertools.count(1)

QUICK = WriterSettings(
    refresh_seconds=0.01, retry_seconds=0.001, retry_seconds_max=0.01, command_seconds_max=1.0
)


@contextlib.asynccontextmanager
async def running(
    store: MemoryStore,
    *,
    faults: Faults | None = None,
    settings: WriterSettings = QUICK,
    observer: WriterObserver | None = None,
    now=lambda: 1_000_000,
    stopwatch=time.perf_counter,
) -> AsyncIterator[Writer]:
    """Run a writer on a store until the block ends."""
    log = MemoryLog(store, faults)
    await log.open(create=True)
    name = f"writer-{next(_numbers)}"
    nonces = (f"{name}-{number}" for number in itertools.count())
    writer = Writer(
        log,
        name=name,
        now=now,
        nonces=lambda: next(nonces),
        settings=settings,
        observer=observer,
        stopwatch=stopwatch,
    )
    await writer.open()
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await log.close()
