"""Seen log ends: the last positions of the log that this store has seen, outside of the log.

A log that ends before any of them has lost acknowledged records and must not be written.
"""

from pathlib import Path

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.wiring import store_layout
from ledger.log.recovery.log_end_check import HeadFile, LogHead
from ledger.runtime.settings.settings import Settings
from projections.store.readers import Readers
from projections.store.store_writer import StoreError


async def witnesses(settings: Settings) -> list[LogHead]:
    """Return the heads that the store's head file and projection have seen.

    A projection that cannot be read is not a witness: it is built again from the log. Raises
    CommandError naming a head file that cannot be read.
    """
    projection = Path(settings.store_dir) / store_layout.PROJECTION
    return [head for head in (noted(settings), await _projected(projection)) if head]


def noted(settings: Settings) -> LogHead | None:
    """Return the head that the store's head file holds. Raises CommandError when it cannot be
    read."""
    try:
        return HeadFile(Path(settings.store_dir) / store_layout.HEAD).read()
    except ValueError as error:
        raise CommandError(Exit.FAILED, str(error)) from error


async def _projected(path: Path) -> LogHead | None:
    readers = Readers(path)
    try:
        async with readers.view() as view:
            head = view.head
    except StoreError:
        return None
    finally:
        await readers.close()
    return LogHead(head.position, head.hash.hex(), str(path)) if head.position else None
