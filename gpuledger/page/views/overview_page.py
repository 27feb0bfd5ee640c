"""Overview: all quotas by pressure, and the health of the ledger."""

from typing import Final

import msgspec

from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_request import PageRequest
from gpuledger.page.page_source import LogHealth
from gpuledger.page.quota_bars import QuotaBar, quota_bar
from projections.queries.quota_usage import Usage, usage

ROWS_MAX: Final = 100
"""Quota lines of a page."""

QUOTAS_MAX: Final = 5_000
"""Quotas that are sorted."""


class QuotaRow(msgspec.Struct, frozen=True):
    """A line of a quota with its bar."""

    line: Usage
    bar: QuotaBar


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The overview of a scope; `next_page` is 0 on the last page."""

    quotas: list[QuotaRow]
    lines: int
    first: int
    next_page: int
    health: LogHealth
    lag: int


async def overview(request: PageRequest) -> Overview:
    """Return the overview of the namespaces that the viewer may read. Raises PageError."""
    await request.require("usage", request.namespace)
    number = request.number("page", 1, 1_000)
    lines, _ = await usage(request.view, request.position, request.scope, limit=QUOTAS_MAX)
    lines.sort(key=_pressure, reverse=True)
    first = (number - 1) * ROWS_MAX
    health = await request.source.health()
    return Overview(
        quotas=[QuotaRow(line, quota_bar(line)) for line in lines[first : first + ROWS_MAX]],
        lines=len(lines),
        first=first + 1,
        next_page=number + 1 if len(lines) > first + ROWS_MAX else 0,
        health=health,
        lag=max(0, (health.position or 0) - request.view.head.position),
    )


def _pressure(line: Usage) -> float:
    if line.limit <= 0:
        return float(line.used)
    return line.used / line.limit


OVERVIEW: Final = PageDefinition(
    path="/",
    title="Overview",
    template="overview.html",
    view=overview,
    navigation="Overview",
)
