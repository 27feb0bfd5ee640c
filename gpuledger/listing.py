"""Listing quotas: their limits, as the projection has them."""

import msgspec

from gpuledger.viewing import paged, viewing
from ledger.runtime.settings import Settings
from projections.queries.scopes import Scope
from projections.queries.usage import usage


class Limit(msgspec.Struct, frozen=True):
    """One limit of a quota, in the unit of its resource."""

    cluster: str
    namespace: str
    quota: str
    resource: str
    limit: int


async def listed(settings: Settings, namespace: str) -> list[Limit]:
    """Return the limits of all quotas, or of those that cover a namespace."""
    scope = Scope(namespace)
    async with viewing(settings, "") as (view, position):
        rows = await paged(
            lambda size, after: usage(view, position, scope, limit=size, after=after)
        )
    return [Limit(one.cluster, one.namespace, one.quota, one.resource, one.limit) for one in rows]
