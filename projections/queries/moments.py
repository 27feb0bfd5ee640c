"""Moments: positions of the log or times as text, the position of each, and ranges of both."""

from datetime import UTC, datetime, timedelta
from typing import Final

from ledger.kube.api.quoting import shown
from projections.store.readers import ProjectionView

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_POSITION_DIGITS_MAX: Final = 15

LAST: Final = 2**62
"""A time after all others, in µs of Unix time."""

Moment = int | datetime
"""A position, or a time with its zone."""


class InvalidMoment(ValueError):
    """The text is not a moment, or the projection has no data as of that moment."""


def parse(text: str) -> Moment:
    """Read a position (`1234`) or an RFC 3339 time (`2026-01-31T12:00:00Z`).

    A time without a zone is in UTC. Raises InvalidMoment naming the text.
    """
    if text.isascii() and text.isdigit() and len(text) <= _POSITION_DIGITS_MAX:
        return int(text)
    try:
        # Python takes dates without hyphens, too: a position with too many digits would be one.
        time = datetime.fromisoformat("" if text.isdigit() else text)
    except ValueError:
        raise InvalidMoment(
            f"{shown(text)!r} is neither a position such as 1234"
            " nor a time such as 2026-01-31T12:00:00Z"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


class ReversedRange(InvalidMoment):
    """The range ends before it begins."""


async def resolve(view: ProjectionView, moment: Moment | None) -> int:
    """Return the last position at a moment, that of the projection when None.

    Raises InvalidMoment when the position is not projected yet. A time after the last record is the
    last position. A time before the first record is position 0, the empty state.
    """
    head = view.head.position
    if moment is None:
        return head
    if isinstance(moment, int):
        if moment > head:
            raise InvalidMoment(f"position {moment} is not projected yet, the last one is {head}")
        return moment
    return await position_at(view, microseconds(moment))


async def position_at(view: ProjectionView, time: int) -> int:
    """Return the last position at a time in µs of Unix time, 0 before the first record."""
    statement = (
        "SELECT position FROM records WHERE time <= ? ORDER BY time DESC, position DESC LIMIT 1"
    )
    async with view.connection.execute(statement, (time,)) as rows:
        row = await rows.fetchone()
    return int(row[0]) if row is not None else 0


async def time_of(view: ProjectionView, position: int) -> int:
    """Return the time of a projected record in µs of Unix time, 0 where there is none."""
    statement = "SELECT time FROM records WHERE position = ?"
    async with view.connection.execute(statement, (position,)) as rows:
        row = await rows.fetchone()
    return int(row[0]) if row is not None else 0


async def positions_between(
    view: ProjectionView, first: Moment | None, last: Moment | None
) -> tuple[int, int]:
    """Return the first and the last position of a range; None is that of the log.

    A range that begins at a time begins with the first record that is not earlier. Raises
    InvalidMoment for a last position that is not projected, and ReversedRange.
    """
    end = await resolve(view, last)
    begin = 1 if first is None else first
    if isinstance(begin, datetime):
        begin = await _first_since(view, begin)
    if first is not None and last is not None and begin > end + 1:
        raise ReversedRange(f"the range begins at position {begin} and ends at {end}")
    return begin, end


async def times_between(
    view: ProjectionView, first: Moment | None, last: Moment | None
) -> tuple[int, int]:
    """Return the first and the last time of a range, in µs of Unix time.

    A position means the time from its own record to the next one, which may have the same time.
    Raises InvalidMoment for a position that is not projected, and ReversedRange.
    """
    begin, end = 0, LAST
    if isinstance(first, datetime):
        begin = microseconds(first)
    elif first:
        begin = await time_of(view, await resolve(view, first))
    if isinstance(last, datetime):
        end = microseconds(last)
    elif last is not None and await resolve(view, last) < view.head.position:
        end = max(await time_of(view, last), await time_of(view, last + 1) - 1)
    if first is not None and last is not None and begin > end:
        raise ReversedRange(f"the range begins at {rfc3339(begin)} and ends at {rfc3339(end)}")
    return begin, end


async def _first_since(view: ProjectionView, time: datetime) -> int:
    """Return the position of the first record that is not earlier, else the next one of the log."""
    statement = "SELECT position FROM records WHERE time >= ? ORDER BY time, position LIMIT 1"
    async with view.connection.execute(statement, (microseconds(time),)) as rows:
        row = await rows.fetchone()
    return int(row[0]) if row is not None else view.head.position + 1


def microseconds(time: datetime) -> int:
    """Return a time as µs of Unix time."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def rfc3339(time: int) -> str:
    """Write µs of Unix time as RFC 3339 in UTC, always with six digits of a second."""
    moment = _EPOCH + timedelta(microseconds=time)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
