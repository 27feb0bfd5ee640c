"""Time ranges of commands: reads `--at`, `--since` and `--until` as positions and times of the log.

A time in the future for `--at`, and a range that ends before it begins, are wrong usage.
"""

from datetime import UTC, datetime

from gpuledger.cli.exit_codes import CommandError, Exit
from projections.queries import moments
from projections.queries.moments import InvalidMoment, Moment
from projections.store.readers import ProjectionView


def moment_of(text: str) -> Moment | None:
    """Read a moment from the command line, None when it is not given. Raises CommandError."""
    try:
        return moments.parse(text) if text else None
    except InvalidMoment as error:
        raise CommandError(Exit.USAGE, str(error)) from error


def moment_at(text: str) -> Moment | None:
    """Read the moment of --at, None when it is not given. Raises CommandError, also for a future
    one."""
    moment = moment_of(text)
    if isinstance(moment, datetime) and moment > datetime.now(UTC):
        raise CommandError(
            Exit.USAGE, f"--at {text} is in the future: give an earlier time, or leave --at out"
        )
    return moment


def ordered(since: str, until: str) -> tuple[Moment | None, Moment | None]:
    """Read the first and the last moment from the command line. Raises CommandError, also if
    reversed."""
    first, last = moment_of(since), moment_of(until)
    if isinstance(first, datetime) and isinstance(last, datetime) and first > last:
        raise reversed_range(since, until)
    if isinstance(first, int) and isinstance(last, int) and first > last:
        raise reversed_range(since, until)
    return first, last


def reversed_range(since: str, until: str) -> CommandError:
    """Return the error for a range that ends before it begins."""
    return CommandError(Exit.USAGE, f"--since {since} is after --until {until}: exchange them")


async def stretch(view: ProjectionView, since: str, until: str) -> tuple[int, int]:
    """Return the first and the last position of a range.

    Without a beginning or an end, the range has that of the log. Raises CommandError, also for a
    reversed range.
    """
    first, last = ordered(since, until)
    end = await resolved(view, last)
    begin = await resolved(view, first) if first is not None else 1
    if isinstance(first, datetime):
        begin += 1
    if since and until and begin > end + 1:
        raise reversed_range(since, until)
    return begin, end


async def times(view: ProjectionView, since: str, until: str) -> tuple[int, int]:
    """Return the first and the last time of a range, in µs of Unix time.

    A position means the time from its own record to the next one. Raises CommandError, also
    for a reversed range.
    """
    first, last = ordered(since, until)
    begin, end = 0, moments.LAST
    if first is not None:
        begin = await _begun(view, first)
    if isinstance(last, datetime):
        end = moments.microseconds(last)
    elif last is not None and await resolved(view, last) < view.head.position:
        end = await moments.time_of(view, last + 1) - 1
    if since and until and begin > end:
        raise reversed_range(since, until)
    return begin, end


async def _begun(view: ProjectionView, moment: Moment) -> int:
    """Return the time of a moment, in µs of Unix time. Raises CommandError if it is unknown."""
    if isinstance(moment, datetime):
        return moments.microseconds(moment)
    return await moments.time_of(view, await resolved(view, moment)) if moment else 0


async def resolved(view: ProjectionView, moment: Moment | None) -> int:
    """Return the position of a moment, the last one without a moment. Raises CommandError."""
    try:
        return await moments.resolve(view, moment)
    except InvalidMoment as error:
        raise CommandError(Exit.NOT_FOUND, str(error)) from error
