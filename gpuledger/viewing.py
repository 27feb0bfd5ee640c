"""Viewing from a command: the projection at a moment, with the position it was read at.

The projection is first brought up to the log, or waited for while a service does that: whoever was
answered before a command began finds it in what the command shows.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, TypeVar

import typer

from gpuledger.exits import Exit, Stop
from gpuledger.projecting import ensure, projection_of
from ledger.runtime.settings import Settings
from projections.queries import moments
from projections.queries.moments import InvalidMoment, Moment
from projections.reading import Readers, View

PAGE_ROWS: Final = 1_000
"""How many accounts or keys are asked for at once."""

COMMAND_SECONDS: Final = 300.0
"""How long a reading command may look at one moment of the projection."""

Row = TypeVar("Row")


@asynccontextmanager
async def viewing(settings: Settings, at: str) -> AsyncIterator[tuple[View, int]]:
    """Open the projection for the block, with the position that `at` means (empty: its last).

    Tells on standard error as of which position the answer is. Raises Stop.
    """
    moment = moment_of(at)
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
    """Read a moment from the command line, None when it is not given. Raises Stop."""
    try:
        return moments.parse(text) if text else None
    except InvalidMoment as error:
        raise Stop(Exit.USAGE, str(error)) from error


def microseconds_since(text: str) -> int:
    """Read a time from the command line as µs of Unix time, 0 when not given. Raises Stop."""
    moment = moment_of(text)
    if isinstance(moment, int):
        raise Stop(Exit.USAGE, f"{text} is a position; give a time such as 2026-01-31T12:00:00Z")
    return moments.microseconds(moment) if moment is not None else 0


async def first_position(view: View, text: str) -> int:
    """Return the first position at or after a moment, 1 when it is not given. Raises Stop."""
    moment = moment_of(text)
    if isinstance(moment, datetime):
        return await _resolved(view, moment) + 1
    return moment or 1


async def _resolved(view: View, moment: Moment | None) -> int:
    try:
        return await moments.resolve(view, moment)
    except InvalidMoment as error:
        raise Stop(Exit.NOT_FOUND, str(error)) from error
