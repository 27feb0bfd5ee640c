"""Overview: quotas by pressure, universe quotas by cluster, cards, waiting pods, denials, health.

A viewer without rights in all namespaces names a namespace. Of quotas that it shares with others
the viewer sees the sums only.
"""

from typing import Final

import msgspec

from gpuledger.page.contents.shown_health import lag_of, shown_health
from gpuledger.page.contents.waiting_pods import waiting_pods
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_request import PageRequest, existing_page
from gpuledger.page.page_source import WAITING_MAX, LogHealth
from gpuledger.page.quantity_texts import second_text
from gpuledger.page.quota_bars import QuotaBar, quota_bar
from gpuledger.page.views.cluster_bars import ClusterRow, cluster_rows
from ledger.kube.client.access_review import SERVICE_ACCOUNTS
from projections.queries.query_scope import EVERYTHING, QueryScope
from projections.queries.quota_usage import Usage, usage
from projections.queries.totals.card_totals import CardTotals, card_totals
from projections.queries.totals.denial_counts import DenialCounts, denial_counts

ROWS_MAX: Final = 50
"""Quota lines of a page."""

QUOTAS_MAX: Final = 5_000
"""Quotas that are sorted, by name."""

QUOTAS_AT_ONCE: Final = 250
"""Quotas that are read in one step; the service answers reviews between two steps."""

DAY: Final = 24 * 3_600 * 1_000_000


class QuotaRow(msgspec.Struct, frozen=True):
    """A line of a quota with its bar. Lines without a namespace are of universe quotas."""

    line: Usage
    bar: QuotaBar


class QuotaTable(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the sorted lines: `first` counts from 1; pages are 0 where there is none.

    `is_complete` is false when the ledger has more than `QUOTAS_MAX` quotas.
    """

    rows: list[QuotaRow]
    lines: int
    first: int
    previous: int
    next: int
    is_complete: bool
    has_clusters: bool


class WaitingSummary(msgspec.Struct, frozen=True):
    """The waiting pods; `oldest` is RFC 3339. `is_known` is false where the source has none.

    `is_complete` is false for `WAITING_MAX` pods, because there may be more.
    """

    is_known: bool
    pods: int = 0
    oldest: str = ""
    is_complete: bool = True


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The overview; a part is None without the right to read it.

    Without `quotas` the viewer has to name a namespace; `suggested` is one, "" for none.
    """

    namespace: str
    suggested: str
    quotas: QuotaTable | None
    clusters: list[ClusterRow]
    cards: CardTotals | None
    waiting: WaitingSummary | None
    denials: DenialCounts | None
    health: LogHealth
    lag: int


async def overview(request: PageRequest) -> Overview:
    """Return the parts that the viewer may read. Raises PageError, InvalidParameter."""
    scope, number = request.scope, request.number("page", 1, 1_000)
    if scope.namespace:
        await request.require("usage", scope.namespace)
    may_use = bool(scope.namespace) or await request.may("usage")
    health = await shown_health(request, in_full=may_use and not scope.namespace)
    lines, is_complete = await _lines(request, scope) if may_use else ([], True)
    shown = [line for line in lines if _is_in(line, scope)]
    return Overview(
        namespace=scope.namespace,
        suggested=_own_namespace(request.viewer.name),
        quotas=_table(shown, number, is_complete=is_complete) if may_use else None,
        clusters=await cluster_rows(request, lines) if may_use and not scope.namespace else [],
        cards=await _cards(request, scope),
        waiting=await _waiting(request, scope),
        denials=await _denials(request, scope),
        health=health,
        lag=lag_of(request, health),
    )


async def _lines(request: PageRequest, scope: QueryScope) -> tuple[list[Usage], bool]:
    """Return the lines of a namespace, or those of all clusters, whose sums are compared.

    With them, whether these are all.
    """
    wanted = scope if scope.namespace else EVERYTHING
    lines: list[Usage] = []
    after = ""
    for _ in range(QUOTAS_MAX // QUOTAS_AT_ONCE):
        more, after = await usage(
            request.view, request.position, wanted, limit=QUOTAS_AT_ONCE, after=after
        )
        lines += more
        if not after:
            break
    return lines, not after


def _is_in(line: Usage, scope: QueryScope) -> bool:
    return not line.cluster or scope.cluster in ("", line.cluster)


def _table(lines: list[Usage], number: int, *, is_complete: bool) -> QuotaTable:
    ordered = sorted(lines, key=_pressure, reverse=True)
    number = existing_page(number, len(ordered), ROWS_MAX)
    first = (number - 1) * ROWS_MAX
    rows = [QuotaRow(line, quota_bar(line)) for line in ordered[first : first + ROWS_MAX]]
    return QuotaTable(
        rows=rows,
        lines=len(ordered),
        first=first + 1,
        previous=number - 1,
        next=number + 1 if len(ordered) > first + ROWS_MAX else 0,
        is_complete=is_complete,
        has_clusters=len({line.cluster for line in lines if line.cluster}) > 1,
    )


def _pressure(line: Usage) -> tuple[float, int]:
    """Return the used part of the limit; any use without a limit comes first."""
    if line.limit <= 0:
        return (float("inf") if line.used > 0 else 0.0), line.used
    return line.used / line.limit, line.used


def _own_namespace(user: str) -> str:
    """Return the namespace of a service account's user name, "" for other users."""
    if not user.startswith(SERVICE_ACCOUNTS):
        return ""
    return user.removeprefix(SERVICE_ACCOUNTS).partition(":")[0]


async def _cards(request: PageRequest, scope: QueryScope) -> CardTotals | None:
    if scope.namespace or not await request.may("cards"):
        return None
    totals = await card_totals(request.view, request.position, cluster=scope.cluster)
    return totals if totals.cards else None


async def _waiting(request: PageRequest, scope: QueryScope) -> WaitingSummary | None:
    if request.is_past or not await request.may("waiting", scope.namespace):
        return None
    rows, _ = await waiting_pods(request, scope.namespace, scope.cluster)
    if rows is None:
        return WaitingSummary(is_known=False)
    oldest = min((row.since for row in rows), default="")
    return WaitingSummary(True, len(rows), second_text(oldest), len(rows) < WAITING_MAX)


async def _denials(request: PageRequest, scope: QueryScope) -> DenialCounts | None:
    if not await request.may("denials", scope.namespace):
        return None
    until = request.time if request.is_past else request.now
    return await denial_counts(request.view, scope, since=until - DAY, until=until)


OVERVIEW: Final = PageDefinition(
    path="/",
    title="Overview",
    template="overview.html",
    view=overview,
    navigation="Overview",
)
