"""Record heads: position, time, hash and writer of a record, and the records beside it."""

from typing import Final

import msgspec

from projections.queries.query_scope import NumberedNamespace
from projections.store.readers import ProjectionView


class RecordHead(msgspec.Struct, frozen=True):
    """A record of the log. Hashes are in hexadecimal, `previous` is that of the record before.

    `time` is in µs of Unix time. `commands` is the number of commands that the record answers.
    """

    position: int
    time: int
    hash: str
    previous: str
    writer: str
    commands: int


async def record_head(view: ProjectionView, position: int) -> RecordHead | None:
    """Return the head of the record at a position, None when there is none."""
    async with view.connection.execute(_HEAD, {"position": position}) as rows:
        row = await rows.fetchone()
    if row is None:
        return None
    time, digest, previous, writer, commands = row
    return RecordHead(
        position, time, digest.hex(), (previous or _NO_RECORD).hex(), writer, commands
    )


async def neighbours(
    view: ProjectionView, position: int, last: int, namespace: NumberedNamespace | None
) -> tuple[int, int]:
    """Return the positions before and after a position, up to `last`, 0 where there is none.

    With a namespace they are the nearest records with events of it.
    """
    if namespace is None:
        return max(0, position - 1), position + 1 if position < last else 0
    values = {"namespace": namespace.number, "position": position, "last": last}
    async with view.connection.execute(_NEIGHBOURS, values) as rows:
        row = await rows.fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


_NO_RECORD: Final = bytes(32)
"""The hash before the first record."""

_HEAD: Final = """
    SELECT time, hash, (SELECT hash FROM records WHERE position = :position - 1), writer, commands
    FROM records WHERE position = :position
"""
_NEIGHBOURS: Final = """
    SELECT coalesce((
        SELECT max(position) FROM events WHERE namespace = :namespace AND position < :position
    ), 0), coalesce((
        SELECT min(position) FROM events
        WHERE namespace = :namespace AND position > :position AND position <= :last
    ), 0)
"""
