"""Deciding from a command: a writer of its own, for as long as the command runs.

Any process may write: a writer decides on the state at the log's end and is refused when somebody
else wrote first, so commands beside a running service take nothing from its promises.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gpuledger.cli.exit_codes import denied
from gpuledger.cli.progress import bar
from gpuledger.storage.open_log import Found
from gpuledger.storage.witnesses import witnesses
from gpuledger.wiring import service_parts, store_layout
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.log.ledger import Accepted, Ledger
from ledger.log.recovery.head_witness import HeadFile
from ledger.log.writer.writer import Writer
from ledger.runtime.settings.settings import Settings

ACTOR = "command line"
"""Who did it, in events that nobody else is named for."""


@asynccontextmanager
async def writer_on(settings: Settings, found: Found) -> AsyncIterator[Writer]:
    """Open a writer at the end of a log and run it for the block. Raises Lost and NewerSchema."""
    writer = Writer(
        found.log,
        name=service_parts.replica_name(),
        now=lambda: time.time_ns() // 1_000,
        nonces=lambda: uuid.uuid4().hex,
        settings=service_parts.writer_settings(settings),
    )
    with bar("reading the log") as progress:
        await writer.open(await witnesses(settings), progress)
    running = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    if found.alone and writer.head.position:
        await HeadFile(Path(settings.store_dir) / store_layout.HEAD).note(writer.head)


async def submit(ledger: Ledger, command: AnyCommand, *, dry_run: bool = False) -> Accepted:
    """Have a command decided. Raises CommandError with the sentence of the denial."""
    answer = await ledger.submit(command, dry_run=dry_run)
    if isinstance(answer, Denial):
        raise denied(answer)
    return answer
