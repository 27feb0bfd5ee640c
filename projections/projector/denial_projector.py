"""Denial projector: stores denials from their stream in a table, and removes old ones from it.

The table keeps the denials of `denials_days` days, and of these the newest 100,000.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import aiosqlite
import msgspec
import structlog

from ledger.core.model.qualified_names import split_qualified
from ledger.log.log_port import Log, LogEntry
from ledger.log.writer import denial_log
from projections.store.store_writer import Store

DENIALS_KEPT: Final = 100_000
"""The table keeps this number of the newest denials."""

EXPIRY_SECONDS: Final = 3600.0
"""Interval at which expired denials are removed."""

_DAY: Final = 86_400 * 1_000_000
"""µs."""

_log: Final = structlog.get_logger("projections")


async def follow(log: Log, store: Store) -> None:
    """Store new denials, from the first one that the table does not have, until cancelled."""
    async with (
        store.transaction() as connection,
        connection.execute("SELECT coalesce(max(position), 0) FROM denials") as rows,
    ):
        row = await rows.fetchone()
    seen = row[0] if row is not None else 0
    async for batch in log.follow_denials(seen + 1):
        rows_of_batch = [denial_row for denial_row in map(_row, batch) if denial_row is not None]
        async with store.transaction() as connection:
            await _write(connection, rows_of_batch)


async def expire(store: Store, days: int, now: Callable[[], float] = time.time) -> None:
    """Remove denials older than `days`, at once and every `EXPIRY_SECONDS`, until cancelled.

    The stream expires them by itself.
    """
    while True:
        oldest = int(now() * 1_000_000) - days * _DAY
        async with store.transaction() as connection:
            await connection.execute("DELETE FROM denials WHERE time < ?", (oldest,))
        await asyncio.sleep(EXPIRY_SECONDS)


async def _write(
    connection: aiosqlite.Connection, rows: list[tuple[int, int, str, str, bytes]]
) -> None:
    await connection.executemany(
        "INSERT OR REPLACE INTO denials (position, time, cluster, namespace, body)"
        " VALUES (?, ?, ?, ?, ?)",
        rows,
    )
    await connection.execute(
        "DELETE FROM denials WHERE position <= (SELECT max(position) FROM denials) - ?",
        (DENIALS_KEPT,),
    )


def _row(entry: LogEntry) -> tuple[int, int, str, str, bytes] | None:
    """Return the row of a denial, None when the payload cannot be decoded."""
    try:
        refusal = denial_log.decode(entry.payload)
    except msgspec.MsgspecError as error:
        _log.warning("denial_unreadable", number=entry.position, reason=str(error))
        return None
    cluster, namespace = split_qualified(refusal.namespace)
    return entry.position, refusal.time, cluster, namespace, entry.payload
