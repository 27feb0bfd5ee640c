"""A page of the history reads the records of the page, not those behind it."""

from pathlib import Path

import pytest
from support.harness.projection_harness import log_of, project, random_payloads, viewing

from projections.queries.event_history import history
from projections.queries.query_scope import EVERYTHING, QueryScope
from projections.store import item_bodies, readers

FETCHED_AT_ONCE = 64
"""Rows that aiosqlite fetches at once."""


@pytest.mark.parametrize("scope", [EVERYTHING, QueryScope(cluster="c1", namespace="red")])
async def test_page_inflates_the_records_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: QueryScope
) -> None:
    inflated: list[int] = []

    def inflate(body: bytes) -> bytes:
        inflated.append(len(body))
        return item_bodies.inflate(body)

    monkeypatch.setattr(readers, "inflate", inflate)
    payloads = random_payloads(1, 1_800)
    assert len(payloads) > 3 * FETCHED_AT_ONCE
    await project(tmp_path / "ledger.sqlite", log_of(payloads))
    async with viewing(tmp_path / "ledger.sqlite") as view:
        events, more = await history(view, 1, len(payloads), scope, limit=3)
    assert (len(events), more is None) == (3, False)
    assert len(inflated) <= 2 * FETCHED_AT_ONCE
