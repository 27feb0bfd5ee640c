"""A cluster whose API server serves no resource claims: the webhooks are registered and charge."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.conftest import _connected
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.controlplane import SERVICE, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import SETTLED_SECONDS

pytestmark = [pytest.mark.e2e, pytest.mark.long]

LINE: Final = f"limits.{CARDS}"
EARLIER: Final = "--runtime-config=resource.k8s.io/v1=false"
"""As Kubernetes before 1.34, which has no other version by default either."""


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("earlier")
    with own_control_plane.control_plane(assets, folder, api_server_flags=[EARLIER]) as running:
        yield running


async def test_pods_are_charged_without_the_group_of_resource_claims(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with _connected(plane) as cluster:
        served = {group["name"] for group in (await cluster.must("GET", "/apis"))["groups"]}
        assert "apps" in served
        assert "resource.k8s.io" not in served
        await own_control_plane.prepare(cluster)
        service = Service(tmp_path, plane.kubeconfig(SERVICE))
        async with own_control_plane.running(service, cluster):
            team = await own_control_plane.team_of(cluster, service, "earlier", **{LINE: "1"})
            path = "/api/v1/namespaces/earlier/pods"
            await cluster.must("POST", path, pod("a"))
            refused = await cluster.ask("POST", path, pod("b"))
            assert refused.status == 403, refused.message
            ok, reason = await service.check("surroundings")
            assert (ok, "resource.k8s.io" in reason) == (True, False), reason
            await eventually(
                team.usage,
                lambda rows: [row["used"] for row in rows] == [1],
                within=SETTLED_SECONDS,
                what="one card is charged",
            )
