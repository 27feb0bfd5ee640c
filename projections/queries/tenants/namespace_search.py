"""Namespace search: the namespaces whose names begin with a text, in pages.

The place of the next page is a number, so that a link to it names no namespace.
"""

from typing import Final

from projections.queries.query_scope import NumberedNamespace
from projections.store.readers import ProjectionView

_LAST_CHARACTER: Final = "\U0010ffff"
"""Sorts after every other character, so that `prefix + it` is the end of a range of names."""


async def namespaces_named(
    view: ProjectionView,
    position: int,
    prefix: str,
    *,
    limit: int,
    cluster: str = "",
    after: int = 0,
) -> tuple[list[NumberedNamespace], int]:
    """Return at most `limit` namespaces as of a position, by name and cluster.

    `after` is the number of the last namespace of the page before. Returns with them the `after` of
    the next page, 0 at the end.
    """
    values = {
        "position": position,
        "prefix": prefix,
        "end": prefix + _LAST_CHARACTER,
        "cluster": cluster,
        "after": after,
        "limit": limit + 1,
    }
    statement = _NEXT if after else _FIRST
    async with view.connection.execute(statement, values) as rows:
        named = [NumberedNamespace(*row) async for row in rows]
    return named[:limit], named[limit - 1].number if len(named) > limit else 0


async def namespace_named(
    view: ProjectionView, position: int, cluster: str, name: str
) -> list[NumberedNamespace]:
    """Return the namespaces of this name as of a position, of all clusters when `cluster` is empty.

    A name is in few clusters, so the answer is short.
    """
    values = {"position": position, "cluster": cluster, "name": name, "most": CLUSTERS_MAX}
    async with view.connection.execute(_NAMED, values) as rows:
        return [NumberedNamespace(*row) async for row in rows]


CLUSTERS_MAX: Final = 100
"""Most clusters of which a name is listed."""

_NAMED: Final = """
    SELECT number, cluster, name FROM namespaces
    WHERE name = :name AND (:cluster = '' OR cluster = :cluster) AND opened <= :position
    ORDER BY cluster LIMIT :most
"""
_SELECT: Final = """
    SELECT number, cluster, name FROM namespaces
    WHERE name >= :prefix AND name < :end AND opened <= :position
    AND (:cluster = '' OR cluster = :cluster)
"""
_END: Final = "ORDER BY name, cluster LIMIT :limit"
_FIRST: Final = f"{_SELECT} {_END}"
_NEXT: Final = f"""{_SELECT}
    AND (name, cluster) > (
        (SELECT name FROM namespaces WHERE number = :after),
        (SELECT cluster FROM namespaces WHERE number = :after)
    )
    {_END}
"""
