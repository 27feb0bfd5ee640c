"""Time ranges of commands: reads `--at`, `--since` and `--until` as positions and times of the log.

A time in the future for `--at`, and a range that ends before it begins, are wrong usage.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from gpuledger.cli.exit_codes import CommandError, Exit
from projections.queries import moments
from projections.queries.moments import InvalidMoment, Moment, ReversedRange
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
    if isinstance(first, int):
        await resolved(view, first)
    with _refusals(since, until):
        return await moments.positions_between(view, first, last)


async def times(view: ProjectionView, since: str, until: str) -> tuple[int, int]:
    """Return the first and the last time of a range, in µs of Unix time.

    A position means the time from its own record to the next one. Raises CommandError, also
    for a reversed range.
    """
    with _refusals(since, until):
        return await moments.times_between(view, *ordered(since, until))


async def resolved(view: ProjectionView, moment: Moment | None) -> int:
    """Return the position of a moment, the last one without a moment. Raises CommandError."""
    with _refusals("", ""):
        return await moments.resolve(view, moment)


@contextmanager
def _refusals(since: str, until: str) -> Iterator[None]:
    """Raise CommandError for a moment of the block that the projection refuses."""
    try:
        yield
    except ReversedRange as error:
        raise reversed_range(since, until) from error
    except InvalidMoment as error:
        raise CommandError(Exit.NOT_FOUND, str(error)) from error
