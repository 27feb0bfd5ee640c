"""Questions about the past stay quick however long the history is.

Processor time is measured, all threads together, so that a busy machine does not fail the test.
"""

import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.history import history
from support.projecting import log_of, project, viewing

from ledger.core.state import State
from projections.queries.history import history as events_of
from projections.queries.holding import holders, holds
from projections.queries.moments import parse, resolve, rfc3339
from projections.queries.scopes import EVERYTHING, Scope
from projections.queries.usage import usage
from projections.reading import View

SECONDS_MAX = 0.050
TEAM = Scope("team-0", "c1")

Question = Callable[[View, int], Awaitable[object]]

QUESTIONS: dict[str, Question] = {
    "usage of all": lambda view, p: usage(view, p, EVERYTHING, limit=500),
    "usage": lambda view, p: usage(view, p, TEAM, limit=500),
    "holders": lambda view, p: holders(view, p, TEAM, limit=500),
    "holds": lambda view, p: holds(view, p, TEAM, limit=500),
    "history": lambda view, p: events_of(view, p, p + 1_000, TEAM, limit=500),
    "history of all": lambda view, p: events_of(view, p, p + 1_000, EVERYTHING, limit=500),
}


async def _check(tmp_path: Path, events: int, namespaces: int) -> None:
    payloads = list(history(State(), events, namespaces=namespaces, live=events // 50))
    path = tmp_path / "ledger.sqlite"
    await project(path, log_of(payloads))
    async with viewing(path) as view:
        for share in (0.01, 0.3, 0.5, 0.75, 1.0):
            moment = parse(rfc3339(await _time(view, share)))
            for name, question in QUESTIONS.items():
                seconds = statistics.median([await _clock(view, moment, question) for _ in "123"])
                assert seconds <= SECONDS_MAX, f"{name} at {share}: {seconds:.3f} s"


async def _time(view: View, share: float) -> int:
    async with view.connection.execute(
        "SELECT time FROM records WHERE position = ?", (max(1, int(view.head.position * share)),)
    ) as rows:
        row = await rows.fetchone()
    assert row is not None
    return int(row[0])


async def _clock(view: View, moment: object, question: Question) -> float:
    start = time.process_time()
    await question(view, await resolve(view, moment))  # type: ignore[arg-type]
    return time.process_time() - start


async def test_questions_as_of_any_moment_are_quick(tmp_path: Path) -> None:
    await _check(tmp_path, 50_000, 20)


@pytest.mark.long
@pytest.mark.parametrize("namespaces", [1, 50])
async def test_questions_on_a_million_events_are_quick(tmp_path: Path, namespaces: int) -> None:
    await _check(tmp_path, 1_000_000, namespaces)
