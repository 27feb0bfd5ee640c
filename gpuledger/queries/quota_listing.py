"""Listing quotas: their limits and what they select, as the projection has them."""

import msgspec

from gpuledger.storage.views import paged, viewing
from ledger.core.model import accounts
from ledger.runtime.settings.settings import Settings
from projections.queries.quota_usage import Usage, usage
from projections.queries.scopes import QueryScope
from projections.queries.selections import EVERYTHING, AccountSelection, selections
from projections.text.selector_text import reach_in_words, selection_in_words


class Limit(msgspec.Struct, frozen=True):
    """One limit of a quota, in the unit of its resource.

    `covers` and `selects` say in words which namespaces the quota covers and which objects it
    counts there; they are empty when that is its own namespace, and all objects.
    """

    cluster: str
    namespace: str
    quota: str
    resource: str
    limit: int
    covers: str
    selects: str


async def listed(settings: Settings, namespace: str) -> list[Limit]:
    """Return the limits of all quotas, or of those that cover a namespace."""
    scope = QueryScope(namespace)
    async with viewing(settings, "") as (view, position):
        rows = await paged(
            lambda size, after: usage(view, position, scope, limit=size, after=after)
        )
        selected = await selections(view, position)
    return [_limit(one, selected.get(_account(one), EVERYTHING)) for one in rows]


def _account(one: Usage) -> str:
    if not one.namespace:
        return accounts.universe(one.quota)
    return accounts.quota(one.cluster, one.namespace, one.quota)


def _limit(one: Usage, selected: AccountSelection) -> Limit:
    covers, selects = reach_in_words(selected.reach), selection_in_words(selected.selects)
    named = (one.cluster, one.namespace, one.quota, one.resource)
    return Limit(*named, one.limit, covers, selects)
