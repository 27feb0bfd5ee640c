"""Audit: the head of the log, its verification, and the corrections of the ledger."""

from typing import Final

import msgspec

from gpuledger.page.contents.correction_rows import CorrectionRow, correction_row
from gpuledger.page.contents.shown_health import lag_of, shown_health
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_request import PageRequest
from gpuledger.page.page_source import LogHealth
from projections.api import query_parameters
from projections.queries.drift_report import drift
from projections.queries.timeline.record_heads import RecordHead, record_head

ROWS_MAX: Final = 50
"""Corrections of a page."""


class AuditRow(msgspec.Struct, frozen=True):
    """A correction with the address of its record."""

    correction: CorrectionRow
    record: str


class AuditReportPage(msgspec.Struct, frozen=True, kw_only=True):
    """The head as of the moment of the page, the state of the log, and corrections, newest first.

    `head` is None before the first record. `health` is that of now.
    """

    head: RecordHead | None
    head_href: str
    health: LogHealth
    lag: int
    namespace: str
    corrections: list[AuditRow]
    next_page: str


async def audit(request: PageRequest) -> AuditReportPage:
    """Return the audit of the namespaces in the parameters. Raises PageError, InvalidParameter."""
    await request.require("drift", request.namespace)
    health = await shown_health(request, in_full=not request.namespace)
    rows, more = await drift(
        request.view,
        request.scope,
        limit=ROWS_MAX,
        before=_before(request),
    )
    return AuditReportPage(
        head=await record_head(request.view, request.position),
        head_href=_record(request, request.position),
        health=health,
        lag=lag_of(request, health),
        namespace=request.namespace,
        corrections=[AuditRow(correction_row(row), _record(request, row.position)) for row in rows],
        next_page=request.here(before=f"{more[0]}.{more[1]}") if more else "",
    )


def _before(request: PageRequest) -> tuple[int, int]:
    """Return the place of the page, which is not after the moment of the page."""
    last = (request.position + 1, 0)
    return min(last, query_parameters.place(request.query, "before") or last)


def _record(request: PageRequest, position: int) -> str:
    return request.href(
        "/page/record",
        position=position,
        namespace=request.namespace,
        cluster=request.query.get("cluster", ""),
    )


AUDIT: Final = PageDefinition(
    path="/audit",
    title="Audit and drift",
    template="audit.html",
    view=audit,
    navigation="Audit and drift",
)
