"""Scrub: reads the whole log again to check that no record was changed, moved or removed.

A start from a snapshot reads the tail only, so damage further back would stay undetected until a
full replay. Scrubbing checks contiguity, every record's own hash and the chain, without
folding, at the speed of the disk; balances are checked by every fold and by `audit verify`.
"""

import asyncio
from collections.abc import Callable

from ledger.log import records
from ledger.log.log_port import Log, Lost

Progress = Callable[[int, int], None]


async def scrub(log: Log, last: int, *, on_progress: Progress | None = None) -> bytes:
    """Check the chain from the first record up to `last` and return the hash there.

    Raises Lost naming the first position that is wrong, records.NewerSchema, Unreachable.
    """
    previous, position = bytes(32), 0
    if last == 0:
        return previous
    async for batch in log.read(1, last):
        for entry in batch:
            position += 1
            previous = _follow(entry.position, entry.payload, position, previous)
        if on_progress is not None:
            on_progress(position, last)
        await asyncio.sleep(0)
    if position != last:
        raise Lost(f"position {position + 1}: the log ends here while {last} was announced")
    return previous


def _follow(stored_at: int, payload: bytes, position: int, previous: bytes) -> bytes:
    if stored_at != position:
        raise Lost(f"position {position}: the record is missing")
    try:
        link, digest = records.decode_link(payload)
    except Lost as error:
        raise Lost(f"position {position}: {error}") from error
    if link.position != position:
        raise Lost(f"position {position}: the record was written for position {link.position}")
    if link.previous != previous:
        raise Lost(f"position {position}: the record does not follow from the one before it")
    return digest
