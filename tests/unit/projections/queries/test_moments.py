"""Positions and times as people write them."""

from datetime import UTC, datetime

import pytest

from projections.queries.moments import InvalidMoment, parse


def test_position_and_time_are_distinguished() -> None:
    assert parse("20260131") == 20260131
    assert parse("2026-01-31T12:00:00Z") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert parse("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize("text", ["1" * 16, "1" * 30, "٣", "-1", "", "now"])
def test_what_is_neither_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(InvalidMoment, match=f"'{text}' is neither"):
        parse(text)
