"""Past lifetimes: how long the holders of a namespace lasted that ended most recently.

The newest records of the namespace are examined. For each, the charges that ended in it are found
by their forks, so the cost does not depend on the length of the history.
"""

import statistics
from typing import Final

import msgspec

from ledger.core.model.events import GONE, OBJECT
from projections.queries.query_scope import NumberedNamespace
from projections.store.interval_index import LEVELS
from projections.store.readers import ProjectionView
from projections.tables.interned_values import FIXED

RECORDS_MAX: Final = 500
"""Records of the namespace that are examined, the newest first."""


class PastLifetimes(msgspec.Struct, frozen=True):
    """The lifetimes of `count` holders that ended: half of them lasted at most `median` µs.

    They ended from `since` on, in µs of Unix time. A lifetime is the time from the last change of a
    holder's charge to its end. Without such a holder all are 0.
    """

    count: int
    median: int
    since: int


async def past_lifetimes(
    view: ProjectionView, position: int, namespace: NumberedNamespace
) -> PastLifetimes:
    """Return the lifetimes of the holders of a namespace that ended before a position.

    Holders are objects with a charge of their own; pods that drew from a root are none.
    """
    values = {
        "namespace": namespace.number,
        "position": position,
        "records": RECORDS_MAX,
        "levels": msgspec.json.encode(_levels(view.head.position)).decode(),
        "object": OBJECT,
        "named_roots": len(FIXED),
        "gone": msgspec.json.encode(sorted(GONE)).decode(),
    }
    async with view.connection.execute(_ENDED, values) as rows:
        ended = [(ended, ended - begun) async for begun, ended in rows]
    if not ended:
        return PastLifetimes(0, 0, 0)
    lasted = [lifetime for _, lifetime in ended]
    return PastLifetimes(len(ended), int(statistics.median(lasted)), min(ended)[0])


def _levels(last: int) -> list[int]:
    """Return the sizes of blocks that a log of this length has, as powers of two.

    A block of one position is left out, because its fork is that of a larger block, too.
    """
    return list(range(1, min(LEVELS, last.bit_length()) + 1))


_ENDED: Final = """
    WITH
        recent AS (
            SELECT position FROM events WHERE namespace = :namespace AND position <= :position
            ORDER BY position DESC LIMIT :records
        ),
        levels AS (SELECT value AS level FROM json_each(:levels))
    SELECT
        coalesce(since, (SELECT time FROM records WHERE records.position = charges.opened)),
        (SELECT time FROM records WHERE records.position = closed)
    FROM recent CROSS JOIN levels
    CROSS JOIN charges_closed
        ON fork = (recent.position >> level << level) + (1 << level >> 1)
        AND charges_closed.namespace = :namespace AND closed = recent.position
    CROSS JOIN charges ON charges.number = charges_closed.number
    CROSS JOIN interned ON interned.number = charges_closed.cause
    WHERE charges.base = :object AND charges.root < :named_roots
    AND interned.body IN (SELECT value FROM json_each(:gone))
"""
