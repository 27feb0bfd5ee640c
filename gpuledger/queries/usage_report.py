"""Usage report for commands: limits and used amounts of quotas, and shares of clusters and
namespaces."""

import msgspec

from gpuledger.storage.projection_views import paged, viewing
from ledger.core.model import accounts
from ledger.runtime.settings.settings import Settings
from projections.queries import universe_shares as sharing
from projections.queries.quota_usage import Usage, usage
from projections.queries.scopes import QueryScope
from projections.queries.selections import EVERYTHING, AccountSelection, selections
from projections.queries.universe_shares import UsageBreakdown, UsageShare
from projections.text.selector_text import reach_in_words, selection_in_words


async def usage_lines(settings: Settings, scope: QueryScope, at: str, quota: str) -> list[Usage]:
    """Return every line of the quotas of a name, or of all quotas. Raises CommandError."""
    async with viewing(settings, at) as (view, position):
        return await paged(
            lambda size, after: usage(view, position, scope, limit=size, quota=quota, after=after)
        )


async def usage_shares(
    settings: Settings, scope: QueryScope, at: str, quota: str, by: str
) -> list[UsageShare]:
    """Return the shares of clusters or namespaces in universe quotas. Raises CommandError."""
    async with viewing(settings, at) as (view, position):
        return await paged(
            lambda size, after: sharing.shares(
                view, position, scope, UsageBreakdown(by), limit=size, quota=quota, after=after
            )
        )


class QuotaLimit(msgspec.Struct, frozen=True):
    """One limit of a quota, in the unit of its resource.

    `covers` and `selects` are texts about the namespaces that the quota covers and the objects it
    counts there; they are empty for a quota of all objects of its namespace.
    """

    cluster: str
    namespace: str
    quota: str
    resource: str
    limit: int
    covers: str
    selects: str


async def quota_limits(settings: Settings, namespace: str) -> list[QuotaLimit]:
    """Return the limits of all quotas, or of those that cover a namespace."""
    scope = QueryScope(namespace)
    async with viewing(settings, "") as (view, position):
        rows = await paged(
            lambda size, after: usage(view, position, scope, limit=size, after=after)
        )
        selected = await selections(view, position)
    return [_quota_limit(one, selected.get(_account(one), EVERYTHING)) for one in rows]


def _account(one: Usage) -> str:
    if not one.namespace:
        return accounts.universe(one.quota)
    return accounts.quota(one.cluster, one.namespace, one.quota)


def _quota_limit(one: Usage, selected: AccountSelection) -> QuotaLimit:
    covers, selects = reach_in_words(selected.reach), selection_in_words(selected.selects)
    named = (one.cluster, one.namespace, one.quota, one.resource)
    return QuotaLimit(*named, one.limit, covers, selects)
