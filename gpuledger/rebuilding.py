"""Rebuilding: the projection from the log alone, in place of the old one or beside it."""

import tempfile
from pathlib import Path
from typing import Final

import msgspec

from gpuledger.exits import Exit, Stop
from gpuledger.finding import Found, log_of
from gpuledger.progress import bar
from gpuledger.projecting import build, projecting, projection_of
from gpuledger.viewing import viewing
from ledger.runtime.settings import Settings
from projections import store
from projections.digest import Digest, digest
from projections.reading import Readers

_SUFFIX: Final = ".rebuilding"


class Comparison(msgspec.Struct, frozen=True):
    """Two digests at one position: the file's, and that of one that was built from the log."""

    position: int
    digest: str
    rebuilt: str
    same: bool


async def rebuild(settings: Settings, last: int | None) -> Digest:
    """Replace the projection by a new one up to a position. Raises Stop, StoreBusy, Lost."""
    async with log_of(settings) as found:
        if not (found.alone or settings.nats):
            raise Stop(
                Exit.NOT_READY,
                f"the service of {settings.store_dir} runs and keeps its projection: stop it"
                " first, or use `gpuledger projection compare`",
            )
        async with projecting(settings):
            return await _rebuild(found, projection_of(settings), last)


async def _rebuild(found: Found, path: Path, last: int | None) -> Digest:
    scratch = path.with_name(path.name + _SUFFIX)
    store.delete(scratch)
    built = await _built(found, scratch, last)
    _replace(path, scratch)
    return built


async def compare(settings: Settings, at: str) -> Comparison:
    """Compare the projection with a new one at a moment. Raises Stop, Lost."""
    async with viewing(settings, at) as (view, position):
        known = await digest(view, position)
    with tempfile.TemporaryDirectory(prefix="compare-", dir=settings.store_dir) as folder:
        async with log_of(settings) as found:
            built = await _built(found, Path(folder) / "projection.sqlite", position)
    return Comparison(position, known.digest, built.digest, known == built)


async def _built(found: Found, path: Path, last: int | None) -> Digest:
    """Build a projection up to a position and return its digest there."""
    with bar("projecting") as progress:
        head = await build(found.log, path, last, progress)
    readers = Readers(path)
    try:
        async with readers.view() as view:
            return await digest(view, head.position)
    finally:
        await readers.close()


def _replace(path: Path, scratch: Path) -> None:
    """Put a closed projection in the place of another; readers find one or none, never half."""
    store.delete(path)
    scratch.rename(path)
    store.delete(scratch)  # what readers leave beside a file: nothing of it was in there
