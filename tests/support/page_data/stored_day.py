"""Stored day: the log of a day in a store as a service leaves it, or in a projection file alone."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from support.harness.projection_harness import log_of
from support.page_data.working_day import DayLog

from gpuledger.storage.open_log import open_log
from gpuledger.wiring import store_layout
from ledger.log.log_port import Log
from ledger.log.recovery.log_end_check import HeadFile, LogHead
from ledger.runtime.settings.settings import Settings
from projections.projector import denial_projector, projector
from projections.store.readers import Readers
from projections.store.store_writer import ProjectionHead, Store

APPENDED_AT_ONCE: Final = 256
SECONDS: Final = 60.0


def now() -> int:
    """Return the present time in µs of Unix time."""
    return time.time_ns() // 1_000


async def store_day(folder: Path, day: DayLog) -> None:
    """Write a log and its denials into a new store, with its projection."""
    settings = Settings(store_dir=str(folder))
    async with open_log(settings, create=True) as opened:
        await _append(opened.log.append, day.payloads)
        head = await _project(folder / store_layout.PROJECTION, opened.log, day.denials)
    await HeadFile(folder / store_layout.HEAD).note(LogHead(head.position, head.hash.hex()))


def stored_day_in(folder: Path, day: DayLog) -> Path:
    """Write a log into a new store and return its folder, while this thread has an event loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, store_day(folder, day)).result()
    return folder


async def project_day(path: Path, day: DayLog) -> None:
    """Write the projection file of a log and its denials; there is no log beside it."""
    await _project(path, log_of(day.payloads), day.denials)


async def _append(
    append: Callable[[bytes, int], Awaitable[int]], payloads: Sequence[bytes]
) -> None:
    """Append records in their order, many at a time."""
    for first in range(0, len(payloads), APPENDED_AT_ONCE):
        numbered = enumerate(payloads[first : first + APPENDED_AT_ONCE], first)
        await asyncio.gather(*(append(payload, position) for position, payload in numbered))


async def _project(path: Path, log: Log, denials: Sequence[bytes]) -> ProjectionHead:
    for payload in denials:
        await log.publish_denial(payload)
    async with await Store.open(path) as store:
        head = await projector.replay(log, store)
        following = asyncio.create_task(denial_projector.follow(log, store))
        try:
            async with asyncio.timeout(SECONDS), Readers(path) as readers:
                # The follower announces nothing.
                while await _denials_in(readers) < len(denials):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    return head


async def _denials_in(readers: Readers) -> int:
    async with (
        readers.view() as view,
        view.connection.execute("SELECT count(*) FROM denials") as rows,
    ):
        row = await rows.fetchone()
    return int(row[0]) if row is not None else 0
