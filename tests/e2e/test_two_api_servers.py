"""Two clusters with real API servers on one ledger, over a link that breaks under load."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e import sites
from tests.e2e.pods import MEMORY, pod
from tests.e2e.service import Row
from tests.e2e.shared import KEY, Shared
from tests.e2e.sites import Sites

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]

POD = 1_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sites]:
    """Run both clusters and their services."""
    async with sites.running(assets, tmp_path_factory.mktemp("sites")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shared(both: Sites) -> AsyncIterator[Shared]:
    """Make a namespace of its own for a test, in both clusters."""
    yield Shared(both, f"team-{uuid.uuid4().hex[:8]}")
    for site in both.both:
        fall = site.service.fall()
        assert not fall, fall


async def test_what_one_cluster_takes_the_other_lacks(shared: Shared) -> None:
    await shared.open(3 * POD)
    west, east = shared.sites.both
    assert (await shared.create(west, "pods", pod("first"))).status == 201
    assert (await shared.create(east, "pods", pod("second"))).status == 201
    assert (await shared.create(east, "pods", pod("third"))).status == 201
    for site in (west, east):
        refused = await shared.create(site, "pods", pod("fourth"))
        assert refused.status == 403
        assert "UniverseExceeded" in refused.message, refused.message
        assert f"{KEY}" in refused.message, refused.message
    await shared.agrees()
