"""Quota listing: the limits of all quotas, with the namespaces and the objects that each counts."""

import msgspec

from gpuledger.storage.projection_views import paged, viewing
from ledger.core.model import accounts
from ledger.runtime.settings.settings import Settings
from projections.queries.query_scope import QueryScope
from projections.queries.quota_usage import Usage, usage
from projections.queries.selecting_quotas import EVERYTHING, AccountSelection, selections
from projections.text.selector_text import reach_in_words, selection_in_words


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
    return [_quota_limit(row, selected.get(_account(row), EVERYTHING)) for row in rows]


def _account(row: Usage) -> str:
    if not row.namespace:
        return accounts.universe(row.quota)
    return accounts.quota(row.cluster, row.namespace, row.quota)


def _quota_limit(row: Usage, selected: AccountSelection) -> QuotaLimit:
    covers, selects = reach_in_words(selected.reach), selection_in_words(selected.selects)
    named = (row.cluster, row.namespace, row.quota, row.resource)
    return QuotaLimit(*named, row.limit, covers, selects)
