"""Interned bodies are read once, and bounded."""

from pathlib import Path

import pytest
from support.harness.projection_harness import log_of, project, random_payloads, viewing

from projections.queries import charged_units
from projections.queries.charged_units import InternedBodies


async def test_interned_bodies_are_forgotten_beyond_their_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charged_units, "INTERNED_MAX", 10)
    path = tmp_path / "ledger.sqlite"
    await project(path, log_of(random_payloads(8, 300)))
    async with viewing(path) as view:
        async with view.connection.execute("SELECT number, body FROM interned") as rows:
            stored = {number: body async for number, body in rows}
        assert len(stored) > 30
        interned, most = InternedBodies(view), 0
        for first in range(2, len(stored), 3):
            numbers = range(first, min(first + 4, len(stored) + 2))
            await interned.read((*numbers, None, 0))
            known = {**interned.texts, **interned.packed}
            assert [known[number] for number in numbers] == [stored[n] for n in numbers]
            assert interned.texts[0] == ""
            most = max(most, len(known))
        assert most <= 10 + 4
