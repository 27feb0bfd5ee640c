"""Scopes: which namespaces a question is about."""

from typing import Final

import msgspec

from projections.store.readers import ProjectionView


class QueryScope(msgspec.Struct, frozen=True):
    """A namespace, a cluster, both, or everything: what is empty is not restricted."""

    namespace: str = ""
    cluster: str = ""

    def includes(self, cluster: str, namespace: str) -> bool:
        """Return whether what happened in a namespace is meant, or in none of them."""
        return self.namespace in {"", namespace} and self.cluster in {"", cluster}


EVERYTHING: Final = QueryScope()


class NumberedNamespace(msgspec.Struct, frozen=True):
    """A namespace with the number that rows have for it."""

    number: int
    cluster: str
    name: str


async def namespaces(view: ProjectionView, scope: QueryScope) -> list[NumberedNamespace]:
    """Return the namespaces of a scope that the log has named, by cluster and name."""
    statement = """
        SELECT number, cluster, name FROM namespaces
        WHERE (:name = '' OR name = :name) AND (:cluster = '' OR cluster = :cluster)
        ORDER BY cluster, name
    """
    values = {"name": scope.namespace, "cluster": scope.cluster}
    async with view.connection.execute(statement, values) as rows:
        return [NumberedNamespace(*row) async for row in rows]
