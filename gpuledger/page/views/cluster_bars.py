"""Cluster bars: the lines of universe quotas by cluster, as segments of a bar.

A viewer with rights in one cluster sees the part of this cluster, and all others as one sum.
"""

from typing import Final

import msgspec

from gpuledger.page.page_request import PageRequest
from gpuledger.page.quota_bars import WIDTH
from projections.queries.query_scope import EVERYTHING
from projections.queries.quota_usage import Usage
from projections.queries.totals.cluster_parts import (
    ClusterPart,
    ClusterParts,
    cluster_parts,
    few_charges,
)
from projections.queries.universe_shares import UsageBreakdown, shares

ROWS_MAX: Final = 50
"""Most lines of universe quotas that are shown by cluster."""

SHADES: Final = 6
"""Different fills of segments; further clusters begin again with the first."""

_SHARES_MAX: Final = 5_000


class ClusterSegment(msgspec.Struct, frozen=True):
    """A cluster's part of a bar: its name, fill and amounts. The name is "" for all others."""

    cluster: str
    shade: int
    x: int
    width: int
    used: int


class ClusterRow(msgspec.Struct, frozen=True):
    """A line of a universe quota by cluster; `segments` is None where the parts are not known."""

    line: Usage
    segments: list[ClusterSegment] | None


async def cluster_rows(request: PageRequest, lines: list[Usage]) -> list[ClusterRow]:
    """Return the universe lines that cover clusters of the viewer, by cluster.

    `lines` are those of all clusters.
    """
    view, position, own = request.view, request.position, request.cluster
    rows = [
        parts
        for parts in await cluster_parts(view, position, lines)
        if not own or own in parts.clusters
    ][:ROWS_MAX]
    if any(parts.parts is None for parts in rows) and not request.is_past:
        rows = await _added_up(request, rows)
    return [ClusterRow(parts.line, _segments(parts, own)) for parts in rows]


async def _added_up(request: PageRequest, rows: list[ClusterParts]) -> list[ClusterParts]:
    """Return the rows with parts from the charges, if these are few."""
    if not await few_charges(request.view):
        return rows
    added, _ = await shares(
        request.view, request.position, EVERYTHING, UsageBreakdown.CLUSTER, limit=_SHARES_MAX
    )
    return [
        msgspec.structs.replace(
            row,
            parts=[
                ClusterPart(share.cluster, share.used, share.reserved)
                for share in added
                if (share.quota, share.resource) == (row.line.quota, row.line.resource)
            ],
        )
        for row in rows
    ]


def _segments(parts: ClusterParts, own: str) -> list[ClusterSegment] | None:
    if parts.parts is None:
        return None
    amounts = {part.cluster: part.used for part in parts.parts if own in ("", part.cluster)}
    others = parts.line.used - sum(amounts.values())
    whole, begin = max(1, parts.line.limit, parts.line.used), 0
    segments = []
    for number, (cluster, used) in enumerate([*amounts.items(), ("", others)]):
        if not cluster and not used:
            continue
        end = begin + max(0, used)
        x, until = WIDTH * begin // whole, WIDTH * end // whole
        segments.append(ClusterSegment(cluster, number % SHADES, x, max(0, until - x), used))
        begin = end
    return segments
