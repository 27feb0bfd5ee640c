"""History period: the stretch of the log that a page shows, from the parameters `from` and `to`."""

from typing import Final

import msgspec

from gpuledger.page.page_request import PageRequest
from projections.api import query_parameters
from projections.api.query_parameters import InvalidParameter
from projections.queries.moments import InvalidMoment, resolve, time_of

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
        first = await _at_time(request, end - DEFAULT_LENGTH)
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
    moment = query_parameters.moment(request.query, name)
    try:
        return await resolve(request.view, moment)
    except InvalidMoment as error:
        raise InvalidParameter(name, request.query[name], message=str(error)) from error


async def _at_time(request: PageRequest, time: int) -> int:
    """Return the last position at a time in µs of Unix time, 0 before the first record."""
    statement = (
        "SELECT position FROM records WHERE time <= ? ORDER BY time DESC, position DESC LIMIT 1"
    )
    async with request.view.connection.execute(statement, (time,)) as rows:
        row = await rows.fetchone()
    return int(row[0]) if row is not None else 0
