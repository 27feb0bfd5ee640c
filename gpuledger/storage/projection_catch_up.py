"""Projection catch-up: a command applies the rest of the log to the projection file.

The process that writes the projection holds a lock beside the file. If a service holds the lock, a
command waits until the service has applied the rest of the log.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import typer

from gpuledger.cli.progress import Progress, bar
from gpuledger.storage.open_log import OpenLog, open_log
from gpuledger.wiring import store_layout
from ledger.log.embedded import store_lock
from ledger.log.embedded.store_lock import StoreBusy
from ledger.log.log_port import Log, Unreachable
from ledger.runtime.settings.settings import Settings
from projections.projector import projector
from projections.store.readers import Readers
from projections.store.store_writer import ProjectionHead, Store, StoreError

SHOWN_SECONDS: Final = 2.0
"""Longest wait of a command until readers see its record."""

BUSY_SECONDS: Final = 10.0
"""Longest wait of a command for another process that writes the projection."""

RETRY_SECONDS: Final = 0.05


def projection_of(settings: Settings) -> Path:
    """Return the projection file of a store."""
    return Path(settings.store_dir) / store_layout.PROJECTION


def _lock_of(settings: Settings) -> Path:
    store = Path(settings.store_dir)
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    return store / store_layout.PROJECTION_LOCK


@asynccontextmanager
async def projecting(settings: Settings, seconds: float = 0.0) -> AsyncIterator[None]:
    """Hold the lock on the store's projection for the block.

    Raises StoreBusy when another process holds it for longer than `seconds`.
    """
    lock = await store_lock.acquire(
        _lock_of(settings), seconds, "a running service, which keeps the projection up to date"
    )
    try:
        yield
    finally:
        lock.release()


async def build(
    log: Log, path: Path, last: int | None, progress: Progress, *, scratch: bool = False
) -> ProjectionHead:
    """Bring a projection file up to a position, None for the log's end; return its head.

    A `scratch` file is read by no other process before this returns.
    """
    store = await Store.open(path, scratch=scratch)
    try:
        return await projector.replay(log, store, last, on_progress=progress)
    finally:
        await store.close()


async def show_written(settings: Settings, opened: OpenLog, position: int) -> None:
    """Make a written position visible to readers: project it, or wait for the service."""
    path = projection_of(settings)
    if opened.alone:
        async with projecting(settings, SHOWN_SECONDS):
            with bar("projecting") as progress:
                await build(opened.log, path, None, progress)
    elif path.exists() and not await _reaches(path, position):
        typer.echo(
            f"Position {position} is stored; the projection {path} does not show it yet.", err=True
        )


async def ensure(settings: Settings) -> None:
    """Bring the projection up to the end of the log, or wait for the process that does.

    Prints a line when that process stays behind. Raises what finding the log
    raises, and StoreBusy when another process has not built the first projection in time.
    """
    until = asyncio.get_running_loop().time() + BUSY_SECONDS
    while True:
        try:
            async with open_log(settings) as opened:
                await _catch_up(settings, opened, until)
                return
        except Unreachable:
            # The server of a service that was killed may answer for a moment and then be gone.
            if asyncio.get_running_loop().time() > until:
                raise
        await asyncio.sleep(RETRY_SECONDS)


async def _catch_up(settings: Settings, opened: OpenLog, until: float) -> None:
    path, last = projection_of(settings), (await opened.log.extent()).last
    async with Readers(path) as readers:
        while (projected := await _head(readers)) < last or not path.exists():
            try:
                async with projecting(settings):
                    with bar("projecting") as progress:
                        await build(opened.log, path, None, progress)
                return
            except StoreBusy:
                if asyncio.get_running_loop().time() > until:
                    _report_late(path, projected, last)
                    return
            await asyncio.sleep(RETRY_SECONDS)


def _report_late(path: Path, projected: int, last: int) -> None:
    if not path.exists():
        raise StoreBusy(f"{path} does not exist yet, and another process is building it: try later")
    typer.echo(f"The projection is at {projected}, the log at {last}.", err=True)


async def _reaches(path: Path, position: int) -> bool:
    """Wait until the projection shows a position; False when it does not in time."""
    readers = Readers(path)
    until = asyncio.get_running_loop().time() + SHOWN_SECONDS
    try:
        while True:
            if await _head(readers) >= position:
                return True
            if asyncio.get_running_loop().time() > until:
                return False
            await asyncio.sleep(RETRY_SECONDS)
    finally:
        await readers.close()


async def _head(readers: Readers) -> int:
    try:
        async with readers.view() as view:
            return view.head.position
    except StoreError:
        return 0
