"""Privileged containers beside those that ask for cards, on a real API server."""

from copy import deepcopy
from typing import Final

import pytest

from tests.e2e.harness.cluster import Answer, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import pod
from tests.e2e.objects.policies import under
from tests.e2e.objects.team import PLENTY, Team
from tests.e2e.scheduling.support.pod_shapes import deployment

pytestmark = pytest.mark.e2e

STRATEGIC: Final = {"Content-Type": "application/strategic-merge-patch+json"}
KNOWN_SECONDS: Final = 30.0
METADATA: Final = {"name": "web", "annotations": {}}
DRY: Final = {"params": {"dryRun": "All"}}


def shell(name: str = "shell", *, privileged: bool = True, **more: str) -> Manifest:
    """Return a container without resources."""
    return {"name": name, "image": "i", "securityContext": {"privileged": privileged}, **more}


def beside(kind: str, container: Manifest, name: str = "trainer") -> Manifest:
    """Return a pod that asks for a card, with another container."""
    manifest = pod(name)
    manifest["spec"].setdefault(kind, []).append(container)
    return manifest


async def debug(team: Team, container: Manifest, name: str = "trainer") -> Answer:
    """Add a debugging container to a pod, as kubectl does."""
    path = f"{team.path}/pods/{name}/ephemeralcontainers"
    change = {"spec": {"ephemeralContainers": [container]}}
    return await team.cluster.ask("PATCH", path, change, headers=STRATEGIC)


async def put_first(team: Team, container: Manifest, name: str = "trainer") -> Answer:
    """Add a debugging container to a pod, before those that it has."""
    path = f"{team.path}/pods/{name}"
    manifest = deepcopy(await team.cluster.must("GET", path))
    manifest["spec"].setdefault("ephemeralContainers", []).insert(0, container)
    return await team.cluster.ask("PUT", f"{path}/ephemeralcontainers", manifest)


def is_refused(answer: Answer) -> None:
    assert answer.status == 403, answer
    assert "PrivilegedContainer" in answer.message, answer.message


async def test_a_pod_with_a_card_and_a_privileged_container_is_refused(team: Team) -> None:
    await team.limit(PLENTY)
    for kind, container in (
        ("containers", shell()),
        ("initContainers", shell()),
        ("initContainers", shell(restartPolicy="Always")),
    ):
        is_refused(await team.create(beside(kind, container)))
    template = deployment(beside("containers", shell()) | {"metadata": METADATA}, 1)
    path = f"/apis/apps/v1/namespaces/{team.namespace}/deployments"
    is_refused(await team.cluster.ask("POST", path, template))
    await team.agrees(cards=0)


async def test_no_privileged_debugging_container_is_added_to_a_pod_with_a_card(team: Team) -> None:
    await team.limit(PLENTY)
    await team.created(pod("trainer"))
    is_refused(await debug(team, shell()))
    is_refused(await put_first(team, shell()))
    assert (await debug(team, shell("plain", privileged=False))).status == 200
    is_refused(await put_first(team, shell()))
    stored = await team.cluster.must("GET", f"{team.path}/pods/trainer")
    assert [container["name"] for container in stored["spec"]["ephemeralContainers"]] == ["plain"]


async def test_an_older_privileged_debugging_container_lets_no_other_in(team: Team) -> None:
    async with under(team, PLENTY, mode="warn"):
        await team.created(pod("trainer"))
        answer = await debug(team, shell("older"))
        assert answer.status == 200, answer
        assert any("PrivilegedContainer" in warning for warning in answer.warnings)

    async def look() -> int:
        return (await team.create(beside("containers", shell(), "canary"), **DRY)).status

    await eventually(
        look, lambda status: status == 403, within=KNOWN_SECONDS, what="limits hold again"
    )
    is_refused(await put_first(team, shell("newer")))
    is_refused(await debug(team, shell("newest")))
    assert (await debug(team, shell("plain", privileged=False))).status == 200


async def test_a_pod_without_a_card_may_be_debugged(team: Team) -> None:
    plain = pod("plain")
    del plain["spec"]["containers"][0]["resources"]
    await team.created(plain)
    assert (await debug(team, shell(), "plain")).status == 200
