"""A HAMi of another release name and namespace works beside gpuledger once the settings name it."""

import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.conftest import _connected
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.authorization import grant
from tests.e2e.harness.cluster import Answer, Cluster
from tests.e2e.harness.controlplane import SERVICE, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects import another_hami
from tests.e2e.objects.another_hami import PLUGIN, SCHEDULER
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import SEEN_SECONDS, Team

pytestmark = pytest.mark.e2e

TENANT: Final = "copying"
WAIT_SECONDS: Final = 60.0
USUAL: Final = "system:serviceaccount:kube-system:hami-scheduler"
GIVEN: Final = {"hami.io/vgpu-devices-to-allocate": "GPU-0,NVIDIA,1000,10:;"}
AGAIN: Final = {"hami.io/vgpu-time": "1"}
PHASE: Final = {"hami.io/bind-phase": "success"}


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with own_control_plane.control_plane(
        assets, tmp_path_factory.mktemp("another-hami")
    ) as running:
        yield running


@pytest.fixture
async def cluster(plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with _connected(plane) as admin:
        yield admin


@pytest.mark.long
async def test_a_hami_of_another_name_is_found_named_and_trusted(
    plane: ControlPlane, cluster: Cluster, tmp_path: Path
) -> None:
    await own_control_plane.prepare(cluster)
    await another_hami.install(cluster)
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}]
    await grant(cluster, USUAL, rules)
    kubeconfig = plane.kubeconfig(SERVICE)
    async with own_control_plane.running(Service(tmp_path, kubeconfig), cluster) as service:
        team = await own_control_plane.team_of(cluster, service, TENANT, **{f"limits.{CARDS}": "9"})
        copies = await another_hami.copy(cluster, TENANT)
        asked = pod("waiting", memory=another_hami.MEMORY)
        await cluster.must("POST", f"{team.path}/pods", asked)
        await copies_are_refused(team, copies)
        for user, annotations in ((SCHEDULER, GIVEN), (PLUGIN, PHASE)):
            answer = await writes(team, user, annotations)
            assert answer.status == 403, answer
            assert "add it to the setting trusted_identities" in answer.message, answer
            assert user in answer.message, answer
        await readiness_names(service, SCHEDULER, PLUGIN)
        setting = await setting_of(service, kubeconfig, copies)
        assert set(setting) == {SCHEDULER, PLUGIN}
    trusting = Service(tmp_path, kubeconfig, trusted_identities=",".join(setting))
    async with own_control_plane.running(trusting, cluster):
        team = await own_control_plane.team_of(cluster, trusting, TENANT)
        await another_hami.place(cluster, f"{team.path}/pods/waiting")
        assert (await writes(team, USUAL, AGAIN)).status == 200
        await eventually(
            lambda: used(trusting),
            lambda memory: memory == another_hami.MEMORY,
            within=SEEN_SECONDS,
            what="the pod that HAMi placed is charged on its card",
        )
        await copies_are_refused(team, copies)
        assert await trusting.metric("gpuledger_allocators_refused") == 0


async def writes(team: Team, user: str, annotations: dict[str, str]) -> Answer:
    change = {"metadata": {"annotations": annotations}}
    return await team.cluster.as_user(user).patch(f"{team.path}/pods/waiting", change)


async def used(service: Service) -> int:
    """Return the memory of cards that is used, MiB."""
    return sum(card["used_memory"] for card in await service.answer("cards", "-o", "json"))


async def copies_are_refused(team: Team, copies: list[str]) -> None:
    for user in copies:
        answer = await writes(team, user, {"hami.io/bind-phase": user.rpartition("-")[2]})
        assert answer.status == 403, answer
        assert "add it" not in answer.message, answer


async def readiness_names(service: Service, *users: str) -> None:
    ok, reason = await service.check("surroundings")
    assert ok, "it is safe: a warning and no failure"
    for words in (*users, "trusted_identities"):
        assert words in reason, reason
    assert TENANT not in reason, reason
    assert await service.metric("gpuledger_allocators_refused") == len(users)


async def setting_of(service: Service, kubeconfig: Path, copies: list[str]) -> list[str]:
    """Return the trusted users by the settings that an import prints."""
    report = await service.answer("import", "hami", "--dry-run", f"--kubeconfig={kubeconfig}")
    assert {account["user"] for account in report["accounts"]["proven"]} == {SCHEDULER, PLUGIN}
    assert {account["user"] for account in report["accounts"]["unproven"]} == set(copies)
    lines = tomllib.loads("\n".join(report["settings"]))
    assert lines["card_schedulers"] == [another_hami.SCHEDULER_NAME]
    return list(lines["trusted_identities"])
