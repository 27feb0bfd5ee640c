"""A random day of resource claims with kills, compared with plain lists of the API server."""

import random
from typing import Final

import pytest

from tests.e2e.resource_claims.support.claim_agreement import ledger_is_cluster
from tests.e2e.resource_claims.support.claim_cluster import ClaimCluster
from tests.e2e.resource_claims.support.claim_day import ClaimDay
from tests.e2e.resource_claims.support.claim_team import ClaimTeam

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(1_800),
    pytest.mark.asyncio(loop_scope="session"),
]

BATCHES: Final = 60
SIZE: Final = 8
EVERY: Final = 6
"""Batches between two comparisons."""

TIGHT: Final = {"memory": 61_440, "cards": 12, "cores": 300}
WIDE: Final = {"memory": 1_000_000, "cards": 1_000, "cores": 100_000}


@pytest.mark.parametrize("seed", range(3))
async def test_the_ledger_is_the_cluster_after_each_part_of_a_random_day(
    yard: ClaimCluster, seed: int
) -> None:
    await yard.run_service()
    teams = tuple(ClaimTeam(yard) for _ in range(2))
    for team, limits in zip(teams, (TIGHT, WIDE), strict=True):
        await team.open(**limits)
    day, chance = ClaimDay(teams, seed), random.Random(seed)
    for number in range(1, BATCHES + 1):
        await day.batch(SIZE, is_reviewed=yard.service.runs)
        if number % EVERY == 0:
            if not yard.service.runs:
                await yard.run_service()
            await ledger_is_cluster(*teams, later=day.later)
            used = await teams[0].charged()
            assert all(used[word] <= limit for word, limit in TIGHT.items()), used
            print(f"seed {seed}, batch {number}: {used}, {dict(day.done)}")
            day.done.clear()
        elif chance.random() < 0.15 and yard.service.runs:
            yard.service.kill()
        elif not yard.service.runs and chance.random() < 0.5:
            await yard.run_service()
    for team in teams:
        await team.clear()
        await team.charge_is(memory=0, cards=0, cores=0)
