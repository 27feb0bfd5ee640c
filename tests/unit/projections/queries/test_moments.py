"""Positions and times as people write them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.builders.decide_and_fold import record
from support.harness.projection_harness import log_of, project, viewing

from ledger.core.model import commands
from ledger.core.model.state import State
from projections.queries.moments import InvalidMoment, ReversedRange, parse, times_between


def test_position_and_time_are_distinguished() -> None:
    assert parse("20260131") == 20260131
    assert parse("2026-01-31T12:00:00Z") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert parse("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("text", ["1" * 16, "1" * 30, "٣", "-1", "", "now"])
def test_what_is_neither_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(InvalidMoment, match=f"'{text}' is neither"):
        parse(text)


async def test_a_position_has_its_own_time_when_the_next_one_has_it_too(tmp_path: Path) -> None:
    state, payloads = State(), []
    for number, time in enumerate((10, 20, 20, 30)):
        limits = commands.SetLimits(f"quota/c1/red/{number}", ("c1/red",), {"cpu": 1})
        payload = record(state, [limits], time=time)
        assert payload is not None
        payloads.append(payload)
    await project(tmp_path / "p.sqlite", log_of(payloads))
    async with viewing(tmp_path / "p.sqlite") as view:
        assert await times_between(view, 2, 2) == (20, 20)
        assert await times_between(view, 1, 1) == (10, 19)
        assert await times_between(view, 3, 3) == (20, 29)
        with pytest.raises(ReversedRange, match="begins at"):
            await times_between(view, 4, 1)
