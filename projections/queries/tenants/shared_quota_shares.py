"""Shared quota shares: the part of a namespace in the quotas that it shares with others.

A quota of the namespace alone that counts the same objects has this part as its usage. Without
one, the namespace's charges are added up, if they are few.
"""

from typing import Final

import msgspec

from projections.queries.query_scope import NumberedNamespace, QueryScope
from projections.queries.quota_usage import Usage
from projections.queries.selecting_quotas import counted, selections
from projections.queries.universe_shares import UsageBreakdown, shares
from projections.store.interval_index import forks_around
from projections.store.readers import ProjectionView

CHARGES_MAX: Final = 1_000
"""Most charge rows of a namespace that are added up."""

_LINES_MAX: Final = 5_000

SharesByLine = dict[tuple[str, str], int]
"""The used amount of the namespace by shared quota and quota key."""


async def shared_quota_shares(
    view: ProjectionView, position: int, namespace: NumberedNamespace, lines: list[Usage]
) -> SharesByLine:
    """Return the namespace's part of the shared lines among the lines that cover it.

    Lines whose part is not known without adding up more than `CHARGES_MAX` charges are left out.
    """
    shared = [line for line in lines if not line.namespace]
    if not shared:
        return {}
    selected = await selections(view, position)
    own = {counted(selected, line): line.used for line in lines if line.namespace}
    parts: SharesByLine = {}
    for line in shared:
        used = own.get(counted(selected, line))
        if used is not None:
            parts[line.quota, line.resource] = used
    if len(parts) == len(shared) or await _exceeds(view, position, namespace):
        return parts
    scope = QueryScope(namespace.name, namespace.cluster)
    rows, _ = await shares(view, position, scope, UsageBreakdown.NAMESPACE, limit=_LINES_MAX)
    added = {(row.quota, row.resource): row.used for row in rows}
    return {
        (line.quota, line.resource): added.get((line.quota, line.resource), 0) for line in shared
    }


async def _exceeds(view: ProjectionView, position: int, namespace: NumberedNamespace) -> bool:
    """Return whether a namespace has too many charge rows to add them up."""
    values = {
        "namespace": namespace.number,
        "position": position,
        "forks": msgspec.json.encode(forks_around(position, view.head.position)).decode(),
        "limit": CHARGES_MAX + 1,
    }
    statement = _OPEN if position == view.head.position else _OPEN_AND_CLOSED
    async with view.connection.execute(statement, values) as rows:
        row = await rows.fetchone()
    return row is not None and row[0] > CHARGES_MAX


_OPEN: Final = """
    SELECT count(*) FROM (
        SELECT 1 FROM charges_open WHERE namespace = :namespace LIMIT :limit
    )
"""
_OPEN_AND_CLOSED: Final = """
    SELECT count(*) FROM (
        SELECT * FROM (SELECT 1 FROM charges_open WHERE namespace = :namespace LIMIT :limit)
        UNION ALL
        SELECT * FROM (
            SELECT 1 FROM charges_closed
            WHERE fork IN (SELECT value FROM json_each(:forks)) AND namespace = :namespace
            AND closed > :position LIMIT :limit
        )
    )
"""
