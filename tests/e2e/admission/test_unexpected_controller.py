"""A controller manager that acts under another name than is expected of it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.conftest import _connected
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import SERVICE, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import CARDS
from tests.e2e.objects.team import QUOTA, Team
from tests.e2e.objects.workloads import TeamWorkloads, replicated

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"
NAMESPACE: Final = "unexpected"
WAIT_SECONDS: Final = 60.0
CONTROLLERS: Final = "platform:controllers"
"""The user name of the controller manager here."""

SETTING: Final = f"replicasets.apps={CONTROLLERS}"
BELIEVED: Final = f"deployments.apps={CONTROLLERS},{SETTING}"


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run a control plane whose controllers all act as the controller manager itself."""
    with own_control_plane.control_plane(
        assets, tmp_path_factory.mktemp("unexpected"), CONTROLLERS
    ) as running:
        yield running


@pytest.fixture
async def cluster(plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with _connected(plane) as admin:
        yield admin


async def test_an_unexpected_controller_is_named_with_the_setting_to_trust_it(
    plane: ControlPlane, cluster: Cluster, tmp_path: Path
) -> None:
    await own_control_plane.prepare(cluster)
    kubeconfig = plane.kubeconfig(SERVICE)
    (tmp_path / "believing").mkdir()
    async with own_control_plane.running(Service(tmp_path, kubeconfig), cluster) as service:
        team = await own_control_plane.team_of(cluster, service, NAMESPACE, **{LINE: "9"})
        await TeamWorkloads(team).created(replicated("Deployment", 1))
        # The Deployment, and beside it the ReplicaSet and the pod that it did not trust.
        await used_is(team, 3)
        ok, reason = await service.check("surroundings")
        assert ok, "it is safe: a warning and no failure"
        for words in (CONTROLLERS, SETTING, "controller_identities"):
            assert words in reason, reason
        assert await service.metric("gpuledger_controllers_not_believed") == 2
        _, _, said = await service.outcome("drift")
        assert f"KIND={CONTROLLERS}" in said, said
    believing = Service(tmp_path / "believing", kubeconfig, controller_identities=BELIEVED)
    async with own_control_plane.running(believing, cluster):
        team = await own_control_plane.team_of(cluster, believing, NAMESPACE)
        await TeamWorkloads(team).created(replicated("Deployment", 2, "second"))
        await used_is(team, 3)
        ok, reason = await believing.check("surroundings")
        assert (ok, CONTROLLERS in reason) == (True, False), reason


async def used_is(team: Team, cards: int) -> None:
    async def look() -> list[int]:
        return [row["used"] for row in await team.usage() if row["quota"] == QUOTA]

    what = f"{cards} cards are charged"
    await eventually(look, lambda seen: seen == [cards], within=WAIT_SECONDS, what=what)
