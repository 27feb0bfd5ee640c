"""Denial list: refused requests of a namespace or of all, newest first, by reason."""

from typing import Final

import msgspec

from gpuledger.page.contents.denial_rows import DenialRow, denial_rows
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_request import PageRequest
from ledger.core.model.denials import Reason
from projections.api import query_parameters
from projections.queries.denial_history import denials
from projections.queries.moments import LAST

ROWS_MAX: Final = 20
"""Different denials of a page."""

EQUAL_DENIALS_MAX: Final = 200
"""Denials that are read for a page."""

_NUMBER_MAX: Final = 10**15


class DenialList(msgspec.Struct, frozen=True, kw_only=True):
    """The denials of a page, and the filter; "" is any. `next` is an address, "" at the end."""

    namespace: str
    reason: str
    reasons: list[str]
    denials: list[DenialRow]
    is_first: bool
    next: str


async def denial_list(request: PageRequest) -> DenialList:
    """Return the denials of the parameters. Raises PageError, InvalidParameter."""
    await request.require("denials", request.namespace)
    reason = request.text("reason")
    before = query_parameters.number(request.query, "before", 0, _NUMBER_MAX)
    read, more = await denials(
        request.view,
        request.scope,
        limit=EQUAL_DENIALS_MAX,
        until=request.time if request.is_past else LAST,
        before=before,
        reason=reason,
    )
    rows, count = denial_rows(read, ROWS_MAX)
    if count < len(read):
        more = read[count - 1].number
    return DenialList(
        namespace=request.namespace,
        reason=reason,
        reasons=sorted({*Reason, reason} - {""}),
        denials=rows,
        is_first=not before,
        next=request.here(before=more) if more else "",
    )


DENIALS: Final = PageDefinition(
    path="/denials",
    title="Denials",
    template="lists/denials.html",
    view=denial_list,
    navigation="Denials",
)
