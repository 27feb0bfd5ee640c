"""Denial projector: stores denials from their stream in a table, and removes old ones from it.

The table keeps the denials of `denials_days` days, and of these the newest 100,000.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Final

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

DenialRow = tuple[int, int, str, str, bytes]
"""Position, time, cluster, namespace and body."""

_log: Final = structlog.get_logger("projections")


async def follow(log: Log, store: Store) -> None:
    """Store new denials, from the first one that the table does not have, until cancelled."""
    seen = await store.write(_seen)
    async for batch in log.follow_denials(seen + 1):
        rows = [row for row in map(_row, batch) if row is not None]
        await store.write(partial(_write, rows=rows))


async def expire(store: Store, days: int, now: Callable[[], float] = time.time) -> None:
    """Remove denials older than `days`, at once and every `EXPIRY_SECONDS`, until cancelled.

    The stream expires them by itself.
    """
    while True:
        oldest = int(now() * 1_000_000) - days * _DAY
        await store.write(partial(_remove, oldest=oldest))
        await asyncio.sleep(EXPIRY_SECONDS)


def _seen(connection: sqlite3.Connection) -> int:
    """Return the position of the newest denial in the table, 0 without one."""
    (seen,) = connection.execute("SELECT coalesce(max(position), 0) FROM denials").fetchone()
    return int(seen)


def _remove(connection: sqlite3.Connection, oldest: int) -> None:
    connection.execute("DELETE FROM denials WHERE time < ?", (oldest,))


def _write(connection: sqlite3.Connection, rows: list[DenialRow]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO denials (position, time, cluster, namespace, body)"
        " VALUES (?, ?, ?, ?, ?)",
        rows,
    )
    connection.execute(
        "DELETE FROM denials WHERE position <= (SELECT max(position) FROM denials) - ?",
        (DENIALS_KEPT,),
    )


def _row(entry: LogEntry) -> DenialRow | None:
    """Return the row of a denial, None when the payload cannot be decoded."""
    try:
        refusal = denial_log.decode(entry.payload)
    except msgspec.MsgspecError as error:
        _log.warning("denial_unreadable", number=entry.position, reason=str(error))
        return None
    cluster, namespace = split_qualified(refusal.namespace)
    return entry.position, refusal.time, cluster, namespace, entry.payload
