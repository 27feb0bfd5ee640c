"""Projection views at a moment, with their position, for commands.

Before it answers, a command applies the rest of the log to the projection. If a service is running,
the command waits until the service has done so. So the answer includes every write that was
acknowledged before the command began.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from gpuledger.cli.output import announce
from gpuledger.storage.open_log import check_store
from gpuledger.storage.projection_catch_up import ensure, projection_of
from gpuledger.storage.time_ranges import moment_at, resolved
from ledger.runtime.settings.settings import Settings
from projections.store.readers import ProjectionView, Readers

PAGE_ROWS: Final = 1_000
"""Accounts or keys of a page."""

COMMAND_SECONDS: Final = 300.0
"""Longest time for which a command reads one moment of the projection."""

Row = TypeVar("Row")


@asynccontextmanager
async def viewing(settings: Settings, at: str) -> AsyncIterator[tuple[ProjectionView, int]]:
    """Open the projection as `caught_up`, and print the position on standard error."""
    async with caught_up(settings, at) as (view, position):
        announce(position, view.head.position)
        yield view, position


@asynccontextmanager
async def caught_up(settings: Settings, at: str) -> AsyncIterator[tuple[ProjectionView, int]]:
    """Open the projection for the block, with the position that `at` means (empty: its last).

    Raises CommandError.
    """
    moment = moment_at(at)
    check_store(settings)
    async with Readers(projection_of(settings), seconds=COMMAND_SECONDS) as readers:
        await ensure(settings)
        async with readers.view() as view:
            yield view, await resolved(view, moment)


async def paged(
    ask: Callable[[int, str], Awaitable[tuple[list[Row], str]]], limit: int = 0
) -> tuple[list[Row], str]:
    """Return the rows of all pages and "", or at most `limit` rows and the place of the next one.

    A limit of 0 is none.
    """
    all_rows: list[Row] = []
    after = ""
    while True:
        size = min(PAGE_ROWS, limit - len(all_rows)) if limit else PAGE_ROWS
        rows, after = await ask(size, after)
        all_rows += rows
        if not after or len(all_rows) == limit:
            return all_rows, after
