"""Unrecognized users: those whose objects name an owner without being its known controller.

Such objects are charged on their own.
"""

from enum import StrEnum
from typing import Final

import msgspec

from ledger.core.model.commands import BARRED
from projections.queries.query_scope import QueryScope
from projections.store.readers import ProjectionView
from projections.tables.interned_values import FIXED


class UserBreakdown(StrEnum):
    """The choice of drift by user."""

    USER = "user"


class UnrecognizedUser(msgspec.Struct, frozen=True):
    """A user whose objects name an owner, without being a known controller of that owner."""

    username: str
    objects: int


async def unrecognized_users(view: ProjectionView, scope: QueryScope) -> list[UnrecognizedUser]:
    """Return the users whose objects in a scope are charged apart from the owners that they name.

    Only the newest charges are examined. The users with the most objects are returned.
    """
    barred = FIXED.index(BARRED)
    values = {"name": scope.namespace, "cluster": scope.cluster, "barred": barred}
    async with view.connection.execute(_UNBELIEVED, values) as rows:
        return [UnrecognizedUser(username, objects) async for username, objects in rows]


_UNBELIEVED: Final = """
    SELECT interned.body, COUNT(DISTINCT namespace || '/' || key) AS objects
    FROM charges JOIN namespaces ON namespaces.number = charges.namespace
    JOIN interned ON interned.number = charges.actor
    WHERE charges.number > (SELECT MAX(number) FROM charges) - 200000
      AND root = :barred AND base = 0
      AND (:name = '' OR namespaces.name = :name)
      AND (:cluster = '' OR namespaces.cluster = :cluster)
    GROUP BY interned.body ORDER BY objects DESC, interned.body LIMIT 16
"""
