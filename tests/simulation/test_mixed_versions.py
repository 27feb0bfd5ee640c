"""Replicas of two versions on one log: none stops, and no rule is broken.

The negative control lets the next version seal its own schema at once, as before schema 4.
"""

import pytest

from ledger.log import records
from ledger.log.memory_log import MemoryStore
from simulation.run import run
from simulation.world.mixed_versions import NEXT, THIS, is_next, mixed_versions

SEEDS = 40
LONG_SEEDS = 2_000
CAUGHT_WITHIN = 10


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Return the schemas of all stored records, and whether the next version wrote them."""
    stored: list[tuple[int, bool]] = []
    store = MemoryStore.store

    def note(self: MemoryStore, payload: bytes, expected: int) -> int:
        position = store(self, payload, expected)
        link, _ = records.decode_link(payload)
        stored.append((records.schema_of(payload), is_next(link.writer)))
        return position

    monkeypatch.setattr(MemoryStore, "store", note)
    return stored


def test_replicas_of_two_versions_break_no_rule(written: list[tuple[int, bool]]) -> None:
    with mixed_versions():
        for seed in range(SEEDS):
            result = run(seed)
            assert result.violation is None, (seed, result.violation)
    assert {schema for schema, _ in written} == {THIS}
    assert {by_next for _, by_next in written} == {True, False}


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_no_seed_of_a_long_campaign_of_two_versions_breaks_a_rule() -> None:
    with mixed_versions():
        for seed in range(SEEDS, SEEDS + LONG_SEEDS):
            result = run(seed)
            assert result.violation is None, (seed, result.violation)


def test_a_next_version_that_seals_its_own_schema_is_noticed(
    written: list[tuple[int, bool]],
) -> None:
    with mixed_versions(seals_newest=True):
        violations = [run(seed).violation for seed in range(CAUGHT_WITHIN)]
    assert (NEXT, True) in written
    assert any(
        violation is not None and "upgrade" in violation.message for violation in violations
    ), violations
