"""Projection process: projects a log from a file of payloads, until a test kills it.

Run as `python -m support.harness.projection_process PAYLOADS DATABASE LAST`, in `tests`, with the
position at which the log ends. Prints its position when it starts and after each transaction, and
then follows the log, as the service's own projector does.
"""

import asyncio
import sys
from pathlib import Path

import msgspec
from support.harness.projection_harness import log_of

from ledger.log import memory_log
from projections.projector import projector
from projections.store.store_writer import Store

RECORDS_AT_ONCE = 10
EVENTS_AT_ONCE = 100
"""Transactions of several batches, of which a test kills many."""


async def main(payloads: list[bytes], database: Path) -> None:
    """Project until killed."""
    memory_log.BATCH_ENTRIES_MAX = RECORDS_AT_ONCE  # type: ignore[misc]
    projector.EVENTS_PER_TRANSACTION = EVENTS_AT_ONCE  # type: ignore[misc]
    store = await Store.open(database)
    say((await store.head()).position)
    await projector.run(log_of(payloads), store, on_progress=say)


def say(position: int, _: int = 0) -> None:
    """Report the position of the file to the parent."""
    print(position, flush=True)


if __name__ == "__main__":
    content = Path(sys.argv[1]).read_bytes()
    stored = msgspec.msgpack.decode(content, type=list[bytes])
    asyncio.run(main(stored[: int(sys.argv[3])], Path(sys.argv[2])))
