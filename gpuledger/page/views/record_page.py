"""Record: one record of the log by its position, with its events and postings."""

from typing import Final

import msgspec

from gpuledger.page.contents.event_rows import EventRow, event_row
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_errors import PageError
from gpuledger.page.page_request import PageRequest
from projections.api import query_parameters
from projections.queries.event_history import START, history
from projections.queries.query_scope import NumberedNamespace
from projections.queries.tenants.namespace_search import namespace_named
from projections.queries.timeline.record_heads import RecordHead, neighbours, record_head

EVENTS_MAX: Final = 50
"""Events of a page."""

_POSITION_MAX: Final = 10**15


class RecordContent(msgspec.Struct, frozen=True, kw_only=True):
    """A record with its events in `namespace`, all when it is empty.

    Addresses are "" where there is no page.
    """

    head: RecordHead
    namespace: str
    events: list[EventRow]
    next_events: str
    previous_record: str
    next_record: str


async def record(request: PageRequest) -> RecordContent:
    """Return the record of the parameter `position`. Raises PageError, InvalidParameter."""
    await request.require("events", request.namespace)
    position = query_parameters.number(request.query, "position", request.position, _POSITION_MAX)
    head = await record_head(request.view, position) if position <= request.position else None
    if head is None:
        raise PageError(
            404,
            f"The projection has no record at position {position} as of position"
            f" {request.position}.",
            remedy=f"Give a position from 1 to {request.position}.",
        )
    events, more = await history(
        request.view,
        position,
        position,
        request.scope,
        limit=EVENTS_MAX,
        after=query_parameters.place(request.query, "after") or START,
    )
    before, after = await neighbours(
        request.view, position, request.position, await _place(request)
    )
    return RecordContent(
        head=head,
        namespace=request.namespace,
        events=[event_row(event) for event in events],
        next_events=request.here(after=f"{more[0]}.{more[1]}") if more else "",
        previous_record=request.here(position=before, after="") if before else "",
        next_record=request.here(position=after, after="") if after else "",
    )


async def _place(request: PageRequest) -> NumberedNamespace | None:
    """Return the namespace of the parameters, None for all or when it is in several clusters."""
    if not request.namespace:
        return None
    places = await namespace_named(
        request.view, request.position, request.cluster, request.namespace
    )
    return places[0] if len(places) == 1 else None


RECORD: Final = PageDefinition(
    path="/record",
    title="Record",
    template="record.html",
    view=record,
)
