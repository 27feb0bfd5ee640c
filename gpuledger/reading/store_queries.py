"""Store queries: the port of commands on the store of this machine."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading.ledger_queries import DriftAnswer, LedgerQueries, QueryAnswer
from gpuledger.storage.projection_views import caught_up, paged
from gpuledger.storage.time_ranges import ordered, stretch, times
from ledger.runtime.settings.settings import Settings
from projections.queries import (
    card_usage,
    denial_history,
    drift_report,
    event_history,
    quota_usage,
    selecting_quotas,
    universe_shares,
    unrecognized_users,
)
from projections.queries import holders as holder_lists
from projections.queries.query_scope import QueryScope
from projections.store.readers import ProjectionView

if TYPE_CHECKING:
    from gpuledger.manifest_fit.fit_report import FitReport
    from webhook.admission.explanation import Explanation
    from webhook.gates.waiting_report import WaitingRow

Row = TypeVar("Row")
AskPage = Callable[[ProjectionView, int, int, str], Awaitable[tuple[list[Row], str]]]
"""Asked with the view, the position, the number of rows and the place of the page."""


class StoreQueries(LedgerQueries):
    """Answers from the projection and the log of a store, after the rest of the log is applied."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def usage(
        self, scope: QueryScope, *, at: str = "", quota: str = ""
    ) -> QueryAnswer[quota_usage.Usage]:
        """Return the lines of quotas."""
        return await self._all(
            at,
            lambda view, position, size, after: quota_usage.usage(
                view, position, scope, limit=size, quota=quota, after=after
            ),
        )

    async def shares(
        self, scope: QueryScope, by: str, *, at: str = "", quota: str = ""
    ) -> QueryAnswer[universe_shares.UsageShare]:
        """Return the shares in quotas over many namespaces."""
        breakdown = universe_shares.UsageBreakdown(by)
        return await self._all(
            at,
            lambda view, position, size, after: universe_shares.shares(
                view, position, scope, breakdown, limit=size, quota=quota, after=after
            ),
        )

    async def limits(self, scope: QueryScope) -> QueryAnswer[selecting_quotas.QuotaLimit]:
        """Return the limits of quotas."""
        return await self._all(
            "",
            lambda view, position, size, after: selecting_quotas.quota_limits(
                view, position, scope, limit=size, after=after
            ),
        )

    async def holders(
        self, scope: QueryScope, *, at: str = "", pods: bool = False, root: str = "", limit: int = 0
    ) -> QueryAnswer[holder_lists.HolderCharge]:
        """Return the charged objects."""
        return await self._all(
            at,
            lambda view, position, size, after: holder_lists.holders(
                view, position, scope, limit=size, after=after, pods=pods, root=root
            ),
            limit,
        )

    async def holds(self, scope: QueryScope, *, at: str = "") -> QueryAnswer[holder_lists.OpenHold]:
        """Return the attempts that are not settled."""
        return await self._all(
            at,
            lambda view, position, size, after: holder_lists.holds(
                view, position, scope, limit=size, after=after
            ),
        )

    async def cards(
        self, *, cluster: str = "", node: str = "", at: str = "", pods: bool = False
    ) -> QueryAnswer[card_usage.CardUsage]:
        """Return the cards."""
        return await self._all(
            at,
            lambda view, position, size, after: card_usage.cards(
                view, position, limit=size, cluster=cluster, node=node, after=after, pods=pods
            ),
        )

    async def events(
        self, scope: QueryScope, *, since: str = "", until: str = "", limit: int
    ) -> QueryAnswer[event_history.HistoryEvent]:
        """Return the events of a range."""
        async with self._range(since, until) as view:
            first, last = await stretch(view, since, until)
            rows, more = await event_history.history(view, first, last, scope, limit=limit)
        return QueryAnswer(view.head.position, view.head.position, rows, more[0] if more else 0)

    async def denials(
        self, scope: QueryScope, *, since: str = "", until: str = "", limit: int
    ) -> QueryAnswer[denial_history.PastDenial]:
        """Return the denials of a range."""
        async with self._range(since, until) as view:
            begin, end = await times(view, since, until)
            rows, more = await denial_history.denials(
                view, scope, limit=limit, since=begin, until=end
            )
        return QueryAnswer(view.head.position, view.head.position, rows, more)

    async def drift(
        self, scope: QueryScope, *, since: str = "", until: str = "", limit: int
    ) -> DriftAnswer[drift_report.Correction]:
        """Return the corrections of a range, and unrecognized users."""
        async with self._range(since, until) as view:
            begin, end = await times(view, since, until)
            rows, more = await drift_report.drift(view, scope, limit=limit, since=begin, until=end)
            users = await unrecognized_users.unrecognized_users(view, scope)
        head = view.head.position
        return DriftAnswer(head, head, rows, more[0] if more else 0, users)

    async def explain(self, file: str, namespace: str | None, username: str) -> "Explanation":
        """Return the decision of the webhook with these settings."""
        from gpuledger.queries import explanation_of_manifest

        return await explanation_of_manifest.explain(self._settings, file, namespace, username)

    async def fit(self, file: str, namespace: str | None, at: str) -> "FitReport":
        """Return the nodes on which pods fit, by these settings."""
        from gpuledger.queries import fit_of_manifest

        return await fit_of_manifest.fit(self._settings, file, namespace, at)

    async def waiting(self, scope: QueryScope) -> "QueryAnswer[WaitingRow]":
        """Raise CommandError: the log has no waiting pods."""
        raise CommandError(
            Exit.USAGE,
            "the log does not record waiting pods: ask a service of the cluster, with --server or"
            " --context",
        )

    async def _all(self, at: str, ask: AskPage[Row], limit: int = 0) -> QueryAnswer[Row]:
        """Return the rows of all pages, or of the first `limit` rows."""
        async with caught_up(self._settings, at) as (view, position):
            rows, more = await paged(lambda size, after: ask(view, position, size, after), limit)
        return QueryAnswer(position, view.head.position, rows, int(bool(more)))

    @asynccontextmanager
    async def _range(self, since: str, until: str) -> AsyncIterator[ProjectionView]:
        ordered(since, until)
        async with caught_up(self._settings, "") as (view, _):
            yield view
