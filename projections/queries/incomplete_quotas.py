"""Incomplete quotas: quotas that select by a label that the log lacks for some objects.

Such an object counts as if it had every label. The queries use an index of the open rows with
missing labels, of which there are usually none.
"""

from typing import Final

import msgspec

from ledger.core.model.traits import Numbered, needs
from projections.store.interval_index import forks_around
from projections.store.readers import ProjectionView


async def incomplete(view: ProjectionView, position: int, numbers: list[int]) -> set[int]:
    """Return the numbers of those accounts that count an object with missing labels as of a
    position.
    """
    wanted = [[number, since] for number, since in await _needing(view, position, numbers)]
    if not wanted:
        return set()
    values = {
        "wanted": msgspec.json.encode(wanted).decode(),
        "position": position,
        "forks": msgspec.json.encode(forks_around(position, view.head.position)).decode(),
    }
    statement = _NOW if position == view.head.position else _THEN
    async with view.connection.execute(statement, values) as rows:
        return {number async for (number,) in rows}


async def _needing(
    view: ProjectionView, position: int, numbers: list[int]
) -> list[tuple[int, int]]:
    """Return the accounts that select by numbered labels, each with its highest number."""
    values = {"numbers": msgspec.json.encode(numbers).decode(), "position": position}
    async with view.connection.execute(_SELECTING, values) as rows:
        accounts = [(number, needs(_selections.decode(selects))) async for number, selects in rows]
    return [account for account in accounts if account[1]]


_selections: Final = msgspec.json.Decoder(tuple[Numbered, ...])

_SELECTING: Final = """
    SELECT account, selects FROM selections
    WHERE account IN (SELECT value FROM json_each(:numbers))
    AND opened <= :position AND (closed IS NULL OR closed > :position)
"""
_COVERS: Final = """
    coverages.account = wanted.value ->> 0
    AND coverages.opened <= :position
    AND (coverages.closed IS NULL OR coverages.closed > :position)
"""
_OPEN: Final = f"""
    EXISTS (
        SELECT 1 FROM charges_open INDEXED BY charges_unread
        CROSS JOIN coverages ON coverages.namespace = charges_open.namespace
        WHERE charges_open.unread < wanted.value ->> 1
        AND charges_open.opened <= :position AND {_COVERS}
    )
"""
_CLOSED: Final = f"""
    EXISTS (
        SELECT 1 FROM coverages
        CROSS JOIN charges_closed ON charges_closed.namespace = coverages.namespace
        CROSS JOIN charges ON charges.number = charges_closed.number
        WHERE charges_closed.fork IN (SELECT value FROM json_each(:forks))
        AND charges_closed.closed > :position AND charges.opened <= :position
        AND charges.read < wanted.value ->> 1 AND {_COVERS}
    )
"""
_NOW: Final = f"SELECT wanted.value ->> 0 FROM json_each(:wanted) AS wanted WHERE {_OPEN}"
_THEN: Final = f"{_NOW} OR {_CLOSED}"
