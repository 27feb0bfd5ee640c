"""An object that names a controller that did not make it draws nothing from its envelope.

A RayCluster without pods holds six cards of eight: a pod that drew from it would get in free.
"""

from typing import Any, Final

import pytest

from tests.e2e.harness.agreement import cards_used
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.objects.fake_operators import operator_of
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import Team
from tests.e2e.objects.workloads import TeamWorkloads, controlled_by, replicated, template, workload

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"
OPERATOR: Final = operator_of("RayCluster")


@pytest.fixture
async def space(team: Team) -> TeamWorkloads:
    """Limit a namespace to eight cards."""
    await team.limit({LINE: "8"})
    return TeamWorkloads(team)


@pytest.fixture
async def owner(space: TeamWorkloads) -> Manifest:
    """Make a RayCluster of six cards, with a head that asks for none, and nothing below it."""
    head = {"spec": {"containers": [{"name": "plain", "image": "busybox"}]}}
    workers = {"replicas": 3, "minReplicas": 0, "maxReplicas": 9, "template": template(cards=2)}
    spec = {"headGroupSpec": {"template": head}, "workerGroupSpecs": [workers]}
    made = await space.created(workload("RayCluster", "ray", **spec))
    assert await cards_used(space.team) == 6
    return made


def below(owner: Manifest, name: str, cards: int = 2) -> Manifest:
    return pod(name, cards=cards, ownerReferences=controlled_by(owner))


async def test_a_forged_pod_counts_for_itself(
    space: TeamWorkloads, owner: Manifest, tenant: Cluster
) -> None:
    thief = TeamWorkloads(space.team, tenant)
    refused = await thief.create(below(owner, "thief", cards=3))
    assert refused.status == 403
    assert "allows 8, 6 are used" in refused.message
    await thief.created(below(owner, "thief"))
    assert await cards_used(space.team, "Pod/thief") == 8
    for number in range(3):
        await space.as_user(OPERATOR).created(below(owner, f"worker-{number}"))
    assert await cards_used(space.team, "Pod/thief") == 8
    refused = await space.as_user(OPERATOR).create(below(owner, "worker-4"))
    assert refused.status == 403


async def test_an_administrator_is_not_a_controller_either(
    space: TeamWorkloads, owner: Manifest
) -> None:
    refused = await space.create(below(owner, "thief", cards=3))
    assert refused.status == 403
    assert "allows 8, 6 are used" in refused.message


async def test_a_forged_replica_set_is_a_root_of_its_own(
    space: TeamWorkloads, owner: Manifest
) -> None:
    forged = replicated("ReplicaSet", 3, "thief")
    forged["metadata"]["ownerReferences"] = controlled_by(owner)
    refused = await space.create(forged)
    assert refused.status == 403
    assert "allows 8, 6 are used" in refused.message
    forged["spec"]["replicas"] = 2
    await space.created(forged)
    await space.pods_are(2)
    assert await cards_used(space.team, "ReplicaSet/thief") == 8
    assert (await space.scale("ReplicaSet", "thief", 3)).status == 403


async def test_no_pod_moves_under_a_controller_afterwards(
    space: TeamWorkloads, owner: Manifest
) -> None:
    await space.created(pod("mover", cards=2))
    change = {"metadata": {"ownerReferences": controlled_by(owner)}}
    refused = await space.change("Pod", "mover", change)
    assert refused.status == 403
    assert "ForgedOwner" in refused.message
    assert await cards_used(space.team) == 8


async def test_a_pod_that_leaves_its_controller_counts_for_itself(
    space: TeamWorkloads, owner: Manifest
) -> None:
    await space.as_user(OPERATOR).created(below(owner, "worker"))
    assert await cards_used(space.team) == 6
    change = {"metadata": {"ownerReferences": None}}
    assert (await space.change("Pod", "worker", change)).status == 200
    assert await cards_used(space.team) == 8


async def test_a_reference_to_an_earlier_object_of_that_name_leads_nowhere(
    space: TeamWorkloads, owner: Manifest
) -> None:
    past = {**owner, "metadata": {"name": "ray", "uid": "11111111-2222-3333-4444-555555555555"}}
    refused = await space.as_user(OPERATOR).create(below(past, "thief", cards=3))
    assert refused.status == 403
    assert "allows 8, 6 are used" in refused.message


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"gpuledger.io/placed": "GPU-1"}},
        {"annotations": {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,8000,30:;"}},
        {"labels": {"hami.io/vgpu-node": "n1"}},
    ],
)
async def test_what_was_allocated_is_not_for_users_to_write(
    space: TeamWorkloads, metadata: dict[str, Any]
) -> None:
    assert (await space.create(pod("claims", **metadata))).status == 403
    await space.created(pod("plain"))
    refused = await space.change("Pod", "plain", {"metadata": metadata})
    assert refused.status == 403
    [key] = [key for part in metadata.values() for key in part]
    assert key in refused.message
    assert await cards_used(space.team) == 1
