"""Card clusters: the clusters whose cards a manifest may ask for."""

from typing import Final

from projections.store.readers import ProjectionView

CLUSTERS_MAX: Final = 100
"""Most clusters that are listed."""


async def card_clusters(view: ProjectionView, position: int) -> list[str]:
    """Return the clusters with cards as of a position, by name.

    Where no cluster has cards, these are the clusters with namespaces.
    """
    values = {"position": position, "limit": CLUSTERS_MAX}
    for statement in (_WITH_CARDS, _WITH_NAMESPACES):
        async with view.connection.execute(statement, values) as rows:
            if names := [str(name) async for (name,) in rows]:
                return names
    return []


_WITH_CARDS: Final = """
    SELECT DISTINCT cluster FROM cards
    WHERE opened <= :position AND (closed IS NULL OR closed > :position)
    ORDER BY cluster LIMIT :limit
"""
_WITH_NAMESPACES: Final = """
    SELECT DISTINCT cluster FROM namespaces WHERE opened <= :position
    ORDER BY cluster LIMIT :limit
"""
