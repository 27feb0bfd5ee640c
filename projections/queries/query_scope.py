"""Query scope: the namespaces of a query, and the namespaces and lines of the numbers in rows."""

from collections.abc import Iterable
from typing import Final

import msgspec

from projections.store.readers import ProjectionView


class QueryScope(msgspec.Struct, frozen=True):
    """A namespace, a cluster, both, or everything: an empty field does not restrict."""

    namespace: str = ""
    cluster: str = ""

    def includes(self, cluster: str, namespace: str) -> bool:
        """Return whether the scope includes a namespace; events without a namespace have empty
        names.
        """
        return self.namespace in {"", namespace} and self.cluster in {"", cluster}


EVERYTHING: Final = QueryScope()


class NumberedNamespace(msgspec.Struct, frozen=True):
    """A namespace with its number in rows."""

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


async def line_names(view: ProjectionView, numbers: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return account and quota key of lines by number."""
    wanted = msgspec.json.encode(sorted(set(numbers))).decode()
    async with view.connection.execute(_LINES, (wanted,)) as rows:
        return {number: (account, key) async for number, account, key in rows}


_LINES: Final = """
    SELECT lines.number, accounts.name, lines.key
    FROM lines JOIN accounts ON accounts.number = lines.account
    WHERE lines.number IN (SELECT value FROM json_each(?))
"""
