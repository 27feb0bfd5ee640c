"""A cluster for each module of tests of resource claims, and a namespace for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.resource_claims.support.claim_agreement import TYPES
from tests.e2e.resource_claims.support.claim_cluster import ClaimCluster, opened
from tests.e2e.resource_claims.support.claim_team import ClaimTeam


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(
    assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClaimCluster]:
    """Run the cluster of all tests of a module."""
    folder = tmp_path_factory.mktemp("claims")
    async with opened(assets, folder, gpu_types=",".join(TYPES)) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def team(yard: ClaimCluster) -> AsyncIterator[ClaimTeam]:
    """Return a namespace of its own for a test, which the test opens with its limits."""
    await yard.run_service()
    yield ClaimTeam(yard)
    fall = yard.service.fall()
    assert not fall, fall
