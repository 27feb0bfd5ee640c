"""Resource claims on a real API server, kube-scheduler and kube-controller-manager."""

import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gpuledger.demo.narration import Narrator
from tests.e2e.resource_claims.support.claim_cluster import ClaimCluster, opened
from tests.e2e.resource_claims.support.claim_story import ClaimStory
from tests.e2e.resource_claims.support.claim_team import ClaimTeam

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def yard(assets, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClaimCluster]:
    """Run the cluster of all tests of this file."""
    async with opened(assets, tmp_path_factory.mktemp("claims"), gpu_types="h100,a100") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def team(yard: ClaimCluster) -> AsyncIterator[ClaimTeam]:
    """Return a namespace of its own for a test, which the test opens with its limits."""
    await yard.run_service()
    yield ClaimTeam(f"team-{uuid.uuid4().hex[:8]}", yard)
    fall = yard.service.fall()
    assert not fall, fall


async def test_a_pod_is_charged_for_its_claim_from_template_to_release(team: ClaimTeam) -> None:
    teller = Narrator()
    teller.opening("The way of a pod with a resource claim.")
    teller.line("API server, kube-scheduler, kube-controller-manager and gpuledger are real.")
    teller.line("Played are the kubelets, and the drivers by the slices that they would publish.")
    await ClaimStory(team, teller).go()
