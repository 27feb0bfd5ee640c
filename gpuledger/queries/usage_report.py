"""Usage from a command: of whole quotas, or of the clusters and namespaces that share them."""

from gpuledger.storage.views import paged, viewing
from ledger.runtime.settings.settings import Settings
from projections.queries import shares as sharing
from projections.queries.quota_usage import Usage, usage
from projections.queries.scopes import QueryScope
from projections.queries.shares import Breakdown, UsageShare


async def lines(settings: Settings, scope: QueryScope, at: str, quota: str) -> list[Usage]:
    """Return every line of the quotas of a name, of all quotas when it is empty. Raises
    CommandError."""
    async with viewing(settings, at) as (view, position):
        return await paged(
            lambda size, after: usage(view, position, scope, limit=size, quota=quota, after=after)
        )


async def shares(
    settings: Settings, scope: QueryScope, at: str, quota: str, by: str
) -> list[UsageShare]:
    """Return what each cluster or namespace takes of quotas over many. Raises CommandError."""
    async with viewing(settings, at) as (view, position):
        return await paged(
            lambda size, after: sharing.shares(
                view, position, scope, Breakdown(by), limit=size, quota=quota, after=after
            )
        )
