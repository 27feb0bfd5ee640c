"""Cluster parts: the use of universe quotas by cluster, from the quotas of the namespaces.

Adding up 100,000 charges takes a second. A namespace's own quota that counts the same objects and
resource already has the sum. The parts are given only if they add up to the use of the universe
quota exactly, so they are never approximate. Other lines need `universe_shares`.
"""

from collections import defaultdict
from typing import Final

import msgspec

from ledger.core.model import accounts
from projections.queries.quota_usage import Usage
from projections.queries.selecting_quotas import Counted, counted, selections
from projections.store.readers import ProjectionView

NAMESPACES_MAX: Final = 100_000
"""Most covered namespaces that are read."""

CHARGES_MAX: Final = 2_000
"""Most charges that are added up for a page; that takes 40 ms."""

_Space = tuple[str, str]
_Sums = tuple[int, int]


class ClusterPart(msgspec.Struct, frozen=True):
    """The used amount of one cluster in a line of a universe quota; `reserved` is a part of it."""

    cluster: str
    used: int
    reserved: int


class ClusterParts(msgspec.Struct, frozen=True):
    """A line of a universe quota, the clusters that it covers, and their parts, None if unknown."""

    line: Usage
    clusters: list[str]
    parts: list[ClusterPart] | None


async def cluster_parts(
    view: ProjectionView, position: int, lines: list[Usage]
) -> list[ClusterParts]:
    """Return the parts of the universe lines among `lines`, which are all lines of the ledger."""
    shared = [line for line in lines if not line.namespace]
    if not shared:
        return []
    selected = await selections(view, position)
    covered = await _covered(view, position)
    own: dict[tuple[_Space, Counted], _Sums] = {
        ((line.cluster, line.namespace), counted(selected, line)): (line.used, line.reserved)
        for line in lines
        if line.namespace
    }
    return [_parts(line, covered[line.account], counted(selected, line), own) for line in shared]


async def few_charges(view: ProjectionView) -> bool:
    """Return whether `universe_shares` adds up the present charges quickly."""
    statement = "SELECT count(*) FROM (SELECT 1 FROM charges_open LIMIT ?)"
    async with view.connection.execute(statement, (CHARGES_MAX + 1,)) as rows:
        row = await rows.fetchone()
    return row is not None and int(row[0]) <= CHARGES_MAX


def _parts(
    line: Usage,
    spaces: list[_Space],
    wanted: Counted,
    own: dict[tuple[_Space, Counted], _Sums],
) -> ClusterParts:
    clusters = sorted({cluster for cluster, _ in spaces})
    if len(clusters) == 1:
        return ClusterParts(line, clusters, [ClusterPart(clusters[0], line.used, line.reserved)])
    sums = dict.fromkeys(clusters, (0, 0))
    for space in spaces:
        used, reserved = own.get((space, wanted), (0, 0))
        before = sums[space[0]]
        sums[space[0]] = before[0] + used, before[1] + reserved
    whole = sum(used for used, _ in sums.values()), sum(held for _, held in sums.values())
    if whole != (line.used, line.reserved):
        return ClusterParts(line, clusters, None)
    parts = [ClusterPart(cluster, *amounts) for cluster, amounts in sums.items()]
    return ClusterParts(line, clusters, parts)


async def _covered(view: ProjectionView, position: int) -> dict[str, list[_Space]]:
    """Return the namespaces that each universe quota covers, by account."""
    spaces: dict[str, list[_Space]] = defaultdict(list)
    values = {
        "position": position,
        "universe": f"{accounts.universe('')}*",
        "limit": NAMESPACES_MAX,
    }
    async with view.connection.execute(_COVERED, values) as rows:
        for account, cluster, name in await rows.fetchall():
            spaces[account].append((cluster, name))
    return spaces


_COVERED: Final = """
    SELECT accounts.name, namespaces.cluster, namespaces.name
    FROM coverages
    JOIN accounts ON accounts.number = coverages.account AND accounts.name GLOB :universe
    JOIN namespaces ON namespaces.number = coverages.namespace
    WHERE coverages.opened <= :position
    AND (coverages.closed IS NULL OR coverages.closed > :position)
    LIMIT :limit
"""
