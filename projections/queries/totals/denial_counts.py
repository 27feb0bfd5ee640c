"""Denial counts: how many denials of a time there were for each reason."""

from collections import Counter
from typing import Final

import msgspec

from projections.queries.denial_history import reason_of
from projections.queries.query_scope import QueryScope
from projections.store.readers import ProjectionView

COUNTED_MAX: Final = 5_000
"""Most denials that are counted, the newest first."""


_ROWS_AT_ONCE: Final = 500


class DenialCounts(msgspec.Struct, frozen=True):
    """The number of denials by reason, the most frequent first.

    `is_complete` is false when there were more than `COUNTED_MAX`; the older ones are not counted.
    """

    by_reason: list[tuple[str, int]]
    total: int
    is_complete: bool


async def denial_counts(
    view: ProjectionView, scope: QueryScope, *, since: int, until: int
) -> DenialCounts:
    """Count the denials of a scope between two times, in µs of Unix time."""
    values = {
        "name": scope.namespace,
        "cluster": scope.cluster,
        "since": since,
        "until": until,
        "limit": COUNTED_MAX + 1,
    }
    statement = _OF_NAMESPACE if scope.namespace else _OF_ALL
    async with view.connection.execute(statement, values) as rows:
        reasons: list[str] = []
        while fetched := list(await rows.fetchmany(_ROWS_AT_ONCE)):
            reasons += [reason_of(body) for (body,) in fetched]
    counted = Counter(reasons[:COUNTED_MAX])
    ordered = sorted(counted.items(), key=lambda entry: (-entry[1], entry[0]))
    return DenialCounts(ordered, counted.total(), len(reasons) <= COUNTED_MAX)


_SELECT: Final = "SELECT body FROM denials WHERE"
_END: Final = """
    (:cluster = '' OR cluster = :cluster) AND time BETWEEN :since AND :until
    ORDER BY position DESC LIMIT :limit
"""
_OF_ALL: Final = f"{_SELECT} {_END}"
_OF_NAMESPACE: Final = f"{_SELECT} namespace = :name AND {_END}"
