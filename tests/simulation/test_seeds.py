"""Seeds: the invariants hold under every seed."""

import os

import pytest

from simulation.campaign import campaign, explain

SEEDS = 200
LONG_SEEDS = 20_000
CHUNK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_seed_breaks_a_rule(first: int) -> None:
    for result in campaign(range(first, first + CHUNK)):
        assert result.violation is None, explain(result.seed)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_no_seed_of_a_long_campaign_breaks_a_rule() -> None:
    seeds = range(SEEDS, SEEDS + LONG_SEEDS)
    for result in campaign(seeds, workers=os.cpu_count() or 1):
        assert result.violation is None, explain(result.seed)
