"""Projection rebuild: builds the projection again from the log, to replace the old one or beside
it."""

from pathlib import Path

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.progress import bar
from gpuledger.storage import scratch_folder
from gpuledger.storage.open_log import OpenLog, open_log
from gpuledger.storage.past_ledger import position_of
from gpuledger.storage.projection_catch_up import build, projecting, projection_of
from gpuledger.storage.projection_views import COMMAND_SECONDS, viewing
from gpuledger.storage.time_ranges import moment_of
from gpuledger.wiring import store_layout
from ledger.runtime.settings.settings import Settings
from projections.store import store_writer
from projections.store.digest import Digest, digest
from projections.store.readers import Readers
from projections.store.store_writer import ProjectionHead


class Comparison(msgspec.Struct, frozen=True):
    """Two digests at one position: the file's, and that of one that was built from the log."""

    position: int
    digest: str
    rebuilt: str
    same: bool


async def rebuild(settings: Settings, at: str) -> Digest:
    """Replace the projection by a new one up to a moment. Raises CommandError, StoreBusy, Lost."""
    moment = moment_of(at)
    async with open_log(settings) as opened:
        if not (opened.alone or settings.nats):
            raise CommandError(
                Exit.NOT_READY,
                f"the service of {settings.store_dir} runs and keeps its projection: stop it"
                " first, or use `gpuledger projection compare`",
            )
        last = await position_of(opened.log, moment, (await opened.log.extent()).last)
        async with projecting(settings):
            return await _rebuild(opened, projection_of(settings), last)


async def _rebuild(opened: OpenLog, path: Path, last: int) -> Digest:
    with scratch_folder.folder(path.parent) as folder:
        head = await _built(opened, folder / path.name, last)
        _replace(path, folder / path.name)
    try:
        return await _digest(path, head.position)
    except TimeoutError as error:
        raise CommandError(
            Exit.NOT_READY,
            f"{path} is rebuilt up to position {head.position} and in place; its digest took too"
            " long: `gpuledger projection digest` computes it again",
        ) from error


async def compare(settings: Settings, at: str) -> Comparison:
    """Compare the projection with a new one at a moment. Raises CommandError, Lost."""
    async with viewing(settings, at) as (view, position):
        known = await digest(view, position)
    with scratch_folder.folder(Path(settings.store_dir)) as folder:
        path = folder / store_layout.PROJECTION
        async with open_log(settings) as opened:
            await _built(opened, path, position)
        built = await _digest(path, position)
    return Comparison(position, known.digest, built.digest, known == built)


async def _built(opened: OpenLog, path: Path, last: int) -> ProjectionHead:
    """Build a projection up to a position and return where it is."""
    with bar("projecting") as progress:
        return await build(opened.log, path, last, progress, scratch=True)


async def _digest(path: Path, position: int) -> Digest:
    """Return a file's digest. Raises TimeoutError where no rows come for `COMMAND_SECONDS`."""
    async with Readers(path, seconds=COMMAND_SECONDS) as readers, readers.view() as view:
        return await digest(view, position)


def _replace(path: Path, built: Path) -> None:
    """Put a closed projection in the place of another; readers find one or none, never half."""
    store_writer.delete(path)
    built.rename(path)
