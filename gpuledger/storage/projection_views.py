"""Projection views at a moment, with their position, for commands.

The projection is first brought up to the log, or waited for while a service does that, so a
command shows every write that was acknowledged before it began.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, TypeVar

import typer

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.storage.open_log import check_store
from gpuledger.storage.projection_catch_up import ensure, projection_of
from ledger.runtime.settings.settings import Settings
from projections.queries import moments
from projections.queries.moments import InvalidMoment, Moment
from projections.store.readers import ProjectionView, Readers

PAGE_ROWS: Final = 1_000
"""How many accounts or keys are asked for at once."""

COMMAND_SECONDS: Final = 300.0
"""How long a reading command may look at one moment of the projection."""

Row = TypeVar("Row")


@asynccontextmanager
async def viewing(settings: Settings, at: str) -> AsyncIterator[tuple[ProjectionView, int]]:
    """Open the projection for the block, with the position that `at` means (empty: its last).

    Prints the position of the answer on standard error. Raises CommandError.
    """
    moment = moment_at(at)
    check_store(settings)
    async with Readers(projection_of(settings), seconds=COMMAND_SECONDS) as readers:
        await ensure(settings)
        async with readers.view() as view:
            position = await _resolved(view, moment)
            typer.echo(f"As of position {position} of {view.head.position}.", err=True)
            yield view, position


async def paged(ask: Callable[[int, str], Awaitable[tuple[list[Row], str]]]) -> list[Row]:
    """Return all rows of a question that is answered in pages."""
    found: list[Row] = []
    after = ""
    while True:
        rows, after = await ask(PAGE_ROWS, after)
        found += rows
        if not after:
            return found


def moment_of(text: str) -> Moment | None:
    """Read a moment from the command line, None when it is not given. Raises CommandError."""
    try:
        return moments.parse(text) if text else None
    except InvalidMoment as error:
        raise CommandError(Exit.USAGE, str(error)) from error


def moment_at(text: str) -> Moment | None:
    """Read the moment of --at, None when it is not given. Raises CommandError, also for a coming
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
    """Return how a command ends whose stretch would end before it begins."""
    return CommandError(Exit.USAGE, f"--since {since} is after --until {until}: exchange them")


async def stretch(view: ProjectionView, since: str, until: str) -> tuple[int, int]:
    """Return the first and the last position from a moment to another.

    Without a moment the log's first or last one. Raises CommandError, also for a reversed range.
    """
    first, last = ordered(since, until)
    end = await _resolved(view, last)
    begin = await _resolved(view, first) if first is not None else 1
    if isinstance(first, datetime):
        begin += 1
    if since and until and begin > end + 1:
        raise reversed_range(since, until)
    return begin, end


async def times(view: ProjectionView, since: str, until: str) -> tuple[int, int]:
    """Return when a stretch begins and ends, in µs of Unix time; both belong to it.

    A position means the time from its own record to the next one. Raises CommandError, also
    for a reversed range.
    """
    first, last = ordered(since, until)
    begin, end = 0, moments.LAST
    if first is not None:
        begin = await _begun(view, first)
    if isinstance(last, datetime):
        end = moments.microseconds(last)
    elif last is not None and await _resolved(view, last) < view.head.position:
        end = await moments.time_of(view, last + 1) - 1
    if since and until and begin > end:
        raise reversed_range(since, until)
    return begin, end


async def _begun(view: ProjectionView, moment: Moment) -> int:
    """Return when a moment was, in µs of Unix time. Raises CommandError for an unknown position."""
    if isinstance(moment, datetime):
        return moments.microseconds(moment)
    return await moments.time_of(view, await _resolved(view, moment)) if moment else 0


async def _resolved(view: ProjectionView, moment: Moment | None) -> int:
    try:
        return await moments.resolve(view, moment)
    except InvalidMoment as error:
        raise CommandError(Exit.NOT_FOUND, str(error)) from error
