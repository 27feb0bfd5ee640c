"""Selecting quotas: the namespaces and objects that selecting quotas count, as of a position.

Limits of quotas are listed with both in words.
"""

from typing import Final

import msgspec

from ledger.core.model import accounts
from ledger.core.model.traits import Numbered, Reach, Selection
from projections.queries.query_scope import QueryScope
from projections.queries.quota_usage import Usage, usage
from projections.store.readers import ProjectionView
from projections.text.selector_text import reach_in_words, selection_in_words


class AccountSelection(msgspec.Struct, frozen=True):
    """The namespaces that an account covers, if it selects them, and the objects that it counts.

    With `asked_only` it counts only the requested part of envelopes.
    """

    reach: Reach | None
    selects: Selection
    asked_only: bool = False


SELECTED: Final = "selected namespaces"
"""The namespaces of a quota, for readers who may not read their names."""

EVERYTHING: Final = AccountSelection(None, ())
"""The selection of an account without a row."""

Counted = tuple[str, Selection, bool]
"""A resource, the objects of which it counts, and whether of envelopes only the requested part."""


async def selections(view: ProjectionView, position: int) -> dict[str, AccountSelection]:
    """Return the selections at a position, by account; accounts without one are left out."""
    async with view.connection.execute(_SELECTIONS, {"position": position}) as rows:
        return {
            account: AccountSelection(
                _reaches.decode(reach), _selections.decode(selects), bool(asked_only)
            )
            async for account, reach, selects, asked_only in rows
        }


def counted(selected: dict[str, AccountSelection], line: Usage) -> Counted:
    """Return the resource and objects that a line counts; `selected` is that of `selections`."""
    selection = selected.get(line.account, EVERYTHING)
    return accounts.resource_of(line.resource), selection.selects, selection.asked_only


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


async def quota_limits(
    view: ProjectionView,
    position: int,
    scope: QueryScope,
    *,
    limit: int,
    quota: str = "",
    after: str = "",
    names: bool = True,
) -> tuple[list[QuotaLimit], str]:
    """Return the limits of at most `limit` quotas, and the account of the next page.

    The other parameters are those of `projections.queries.quota_usage.usage`. Without `names`,
    `covers` names no namespace and no cluster.
    """
    rows, more = await usage(view, position, scope, limit=limit, quota=quota, after=after)
    selected = await selections(view, position) if rows else {}
    limits = [_quota_limit(row, selected.get(row.account, EVERYTHING), names) for row in rows]
    return limits, more


def _quota_limit(row: Usage, selected: AccountSelection, names: bool) -> QuotaLimit:
    reach, selects = selected.reach, selection_in_words(selected.selects)
    is_shown = names or reach in (None, Reach())
    covers = reach_in_words(reach) if is_shown else SELECTED
    named = (row.cluster, row.namespace, row.quota, row.resource)
    return QuotaLimit(*named, row.limit, covers, selects)


_reaches: Final = msgspec.json.Decoder(Reach | None)
_selections: Final = msgspec.json.Decoder(tuple[Numbered, ...])

_SELECTIONS: Final = """
    SELECT accounts.name, reach, selects, asked_only
    FROM selections JOIN accounts ON accounts.number = selections.account
    WHERE selections.opened <= :position
    AND (selections.closed IS NULL OR selections.closed > :position)
"""
