"""History period: the stretch of the log that a page shows, from the parameters `from` and `to`."""

from typing import Final

import msgspec

from gpuledger.page.page_request import PageRequest
from projections.api import query_parameters
from projections.api.query_parameters import InvalidParameter
from projections.queries.moments import position_at, time_of

DEFAULT_LENGTH: Final = 86_400 * 1_000_000
"""Length of the period without `from`, in µs."""


class HistoryPeriod(msgspec.Struct, frozen=True):
    """The records after position `first` up to `last`, with the times of both in µs of Unix time.

    The state at `first` is the one before the period.
    """

    first: int
    last: int
    begin: int
    end: int


async def history_period(request: PageRequest) -> HistoryPeriod:
    """Return the period of the parameters: by default the day before the moment of the page.

    Raises InvalidParameter.
    """
    last = await _position(request, "to")
    last = request.position if last is None else last
    if last > request.position:
        raise InvalidParameter(
            "to", request.query["to"], message=f"it is after position {request.position}"
        )
    end = await time_of(request.view, last)
    first = await _position(request, "from")
    if first is None:
        first = await position_at(request.view, end - DEFAULT_LENGTH)
    if first > last:
        raise InvalidParameter(
            "from", request.query.get("from", ""), message=f"it is after position {last}"
        )
    begin = await time_of(request.view, max(first, 1))
    return HistoryPeriod(first, last, min(begin, end), end)


async def _position(request: PageRequest, name: str) -> int | None:
    """Return the position of a moment in a parameter, None when it is empty or not given."""
    if not request.query.get(name):
        return None
    return await query_parameters.position(request.view, request.query, name)
