"""Objects that change owners, names and namespaces: adopted, recreated, contended for, deleted."""

import asyncio
from typing import Final

import pytest

from tests.e2e.harness.agreement import cards_used
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import SETTLED_SECONDS, Team
from tests.e2e.objects.workloads import CONTROLLER_SECONDS, TeamWorkloads, job, replicated

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"


async def adopted(space: TeamWorkloads, kind: str, name: str) -> None:
    """Wait until an object has a controller."""

    async def look() -> list[object]:
        metadata = (await space.get(kind, name))["metadata"]
        return [
            owner["uid"] for owner in metadata.get("ownerReferences", ()) if owner["controller"]
        ]

    await eventually(look, bool, within=CONTROLLER_SECONDS, what=f"{kind} {name} has a controller")


async def test_a_pod_that_is_adopted_draws_from_then_on(team: Team) -> None:
    await team.limit({LINE: "4"})
    space = TeamWorkloads(team)
    await team.created(pod("found", labels={"app": "web"}))
    assert await cards_used(space.team) == 1
    await space.created(replicated("ReplicaSet", 3))
    await adopted(space, "Pod", "found")
    await space.pods_are(3)
    assert await cards_used(space.team) == 3


async def test_a_deployment_that_comes_again_takes_its_pods_back(team: Team) -> None:
    await team.limit({LINE: "6"})
    space = TeamWorkloads(team)
    await space.created(replicated("Deployment", 3))
    await space.pods_are(3)
    await space.delete("Deployment", "web", "Orphan")
    await space.gone("Deployment", "web")
    assert await cards_used(space.team) == 3
    [left] = await space.cluster.items(space.path("ReplicaSet"))
    await space.created(replicated("Deployment", 3))
    await adopted(space, "ReplicaSet", left["metadata"]["name"])
    await space.pods_are(3)
    assert await cards_used(space.team) == 3


async def test_a_pod_with_a_reused_name_is_charged_again(team: Team) -> None:
    await team.limit({LINE: "4"})
    space = TeamWorkloads(team)
    for count in (4, 1, 4, 2):
        await space.created(job(count))
        await space.pods_are(count)
        await space.delete("Job", "train")
        await space.gone("Job", "train")
        await space.pods_are(0)
    await space.created(job(3))
    assert await cards_used(space.team) == 3


async def test_of_two_that_want_the_last_cards_one_gets_them(team: Team) -> None:
    await team.limit({LINE: "4"})
    space = TeamWorkloads(team)
    kinds = ("Deployment", "ReplicaSet", "StatefulSet")
    answers = await asyncio.gather(
        *(space.create(replicated(kind, 3, kind.lower())) for kind in kinds)
    )
    assert sorted(answer.status for answer in answers) == [201, 403, 403]
    assert await cards_used(space.team) == 3


async def test_a_quota_that_comes_after_the_workloads_counts_them(team: Team) -> None:
    space = TeamWorkloads(team)
    await space.created(replicated("StatefulSet", 3))
    await space.created(job(2))
    await space.pods_are(5)
    await team.limit({LINE: "4"})
    assert await cards_used(space.team) == 5
    assert (await space.scale("StatefulSet", "web", 2)).status == 200
    await space.pods_are(4)
    assert await cards_used(space.team) == 4


async def test_a_deleted_namespace_leaves_nothing_behind(team: Team) -> None:
    await team.limit({LINE: "9"})
    space = TeamWorkloads(team)
    await space.created(replicated("Deployment", 3))
    await space.created(job(2))
    await space.pods_are(5)
    await team.cluster.must("DELETE", team.path)

    async def left() -> list[object]:
        return [*await team.usage(), *await team.holders(), *await team.holds()]

    await eventually(
        left, lambda rows: not rows, within=SETTLED_SECONDS, what="nothing of it is left"
    )


async def test_many_are_deleted_at_once(team: Team) -> None:
    await team.limit({LINE: "9"})
    space = TeamWorkloads(team)
    for number in range(4):
        await space.created(replicated("ReplicaSet", 2, f"r-{number}"))
    await space.pods_are(8)
    options = {"propagationPolicy": "Background"}
    await space.cluster.must("DELETE", space.path("ReplicaSet"), options)
    await space.pods_are(0)
    assert await cards_used(space.team) == 0


async def test_kubectl_shows_who_refused_and_why(team: Team, kubectl: Kubectl) -> None:
    await team.limit({LINE: "4"})
    space = TeamWorkloads(team)
    await space.created(replicated("Deployment", 3))
    prefix = f"kubectl -n {team.namespace}"
    status, output = kubectl.attempt(f"{prefix} scale deployment/web --replicas=6")
    assert status != 0
    assert "allows 4, 3 are used" in output
    status, output = kubectl.attempt(f"{prefix} set resources deployment/web --limits={CARDS}=2")
    assert status != 0
    assert "allows 4, 3 are used" in output
    kubectl.type(f"{prefix} scale deployment/web --replicas=2")
    kubectl.type(f"{prefix} set resources deployment/web --limits={CARDS}=2")
    kubectl.type(f"{prefix} rollout undo deployment/web")
    kubectl.type(f"{prefix} rollout restart deployment/web")
    # A pod of the restart is beside two, or one of two cards too if the controller was quick.
    assert await cards_used(space.team) in (3, 4)
