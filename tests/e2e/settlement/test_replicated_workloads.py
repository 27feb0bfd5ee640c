"""Deployments, ReplicaSets and StatefulSets, with the controllers that make their pods."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from tests.e2e.harness.agreement import assert_ledger_is_cluster, cards_used
from tests.e2e.harness.cluster import Answer
from tests.e2e.objects.pods import CARDS, MEMORY, pod
from tests.e2e.objects.team import PLENTY, QUOTA, Team
from tests.e2e.objects.workloads import AUTOSCALER, TeamWorkloads, replicated

pytestmark = pytest.mark.e2e

KINDS: Final = ("Deployment", "ReplicaSet", "StatefulSet")
LINE: Final = f"limits.{CARDS}"

each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
async def space(team: Team) -> TeamWorkloads:
    """Limit a namespace to four cards."""
    await team.limit({LINE: "4"})
    return TeamWorkloads(team)


@each_kind
async def test_what_can_never_fit_is_refused_at_the_root_with_numbers(
    space: TeamWorkloads, kind: str
) -> None:
    refused = await space.create(replicated(kind, 5))
    assert refused.status == 403
    product = "would need 5 GPUs (5 pods \N{MULTIPLICATION SIGN} 1)"
    assert f'{product}, quota "{QUOTA}" allows 4, nothing is used' in refused.message
    assert "It can never fit: at most 4 replicas." in refused.message
    [cause] = refused.body["details"]["causes"]
    assert cause["field"] == LINE
    assert await space.cluster.items(space.path(kind)) == []
    assert await cards_used(space.team) == 0


@each_kind
async def test_pods_draw_from_what_their_workload_was_admitted_with(
    space: TeamWorkloads, kind: str
) -> None:
    await space.created(replicated(kind, 4))
    await space.pods_are(4)
    refused = await space.create(pod("alone"))
    assert refused.status == 403
    assert "allows 4, 4 are used" in refused.message
    assert await cards_used(space.team) == 4


Scale = Callable[[TeamWorkloads, str, int], Awaitable[Answer]]


async def by_patch(space: TeamWorkloads, kind: str, replicas: int) -> Answer:
    return await space.scale(kind, "web", replicas)


async def by_put(space: TeamWorkloads, kind: str, replicas: int) -> Answer:
    return await space.as_user(AUTOSCALER).scale_by_put(kind, "web", replicas)


async def by_its_spec(space: TeamWorkloads, kind: str, replicas: int) -> Answer:
    return await space.change(kind, "web", {"spec": {"replicas": replicas}})


async def by_applying(space: TeamWorkloads, kind: str, replicas: int) -> Answer:
    return await space.apply(replicated(kind, replicas))


each_way = pytest.mark.parametrize("to", [by_patch, by_put, by_its_spec, by_applying])


@each_kind
@each_way
async def test_only_an_increase_is_asked_for_and_a_decrease_frees(
    space: TeamWorkloads, kind: str, to: Scale
) -> None:
    await space.created(replicated(kind, 2))
    await space.pods_are(2)
    refused = await to(space, kind, 5)
    assert refused.status == 403, refused
    assert "allows 4, 2 are used" in refused.message
    assert (await to(space, kind, 4)).status == 200
    await space.pods_are(4)
    assert await cards_used(space.team) == 4
    assert (await to(space, kind, 0)).status == 200
    await space.pods_are(0)
    assert await cards_used(space.team) == 0


@each_kind
async def test_of_six_concurrent_changes_the_one_that_is_stored_counts(
    space: TeamWorkloads, kind: str
) -> None:
    await space.created(replicated(kind, 1))
    ways = [to(space, kind, wish) for wish in (2, 3, 4) for to in (by_patch, by_its_spec)]
    answers = await asyncio.gather(*ways)
    assert {answer.status for answer in answers} <= {200, 403, 409}
    stored = (await space.get(kind, "web"))["spec"]["replicas"]
    await space.pods_are(stored)
    assert await cards_used(space.team) == stored


@each_kind
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_a_deleted_workload_frees_all_it_had(
    space: TeamWorkloads, kind: str, propagation: str
) -> None:
    await space.created(replicated(kind, 3))
    await space.pods_are(3)
    await space.delete(kind, "web", propagation)
    await space.gone(kind, "web")
    await space.pods_are(0)
    assert await cards_used(space.team) == 0


@each_kind
async def test_what_an_orphaning_deletion_leaves_is_still_charged(
    space: TeamWorkloads, kind: str
) -> None:
    await space.created(replicated(kind, 3))
    await space.pods_are(3)
    await space.delete(kind, "web", "Orphan")
    await space.gone(kind, "web")
    assert await cards_used(space.team) == 3
    assert (await space.create(pod("alone", cards=2))).status == 403


@each_kind
async def test_a_template_that_asks_for_more_is_charged_at_once(team: Team, kind: str) -> None:
    await team.limit({f"limits.{MEMORY}": "10000"})
    space = TeamWorkloads(team)
    await space.created(replicated(kind, 2, memory=3_000))
    template = replicated(kind, 2, memory=6_000)["spec"]["template"]
    refused = await space.change(kind, "web", {"spec": {"template": template}})
    assert refused.status == 403
    assert "allows 10000, 6000 are used" in refused.message
    template = replicated(kind, 2, memory=5_000)["spec"]["template"]
    assert (await space.change(kind, "web", {"spec": {"template": template}})).status == 200
    lines = await assert_ledger_is_cluster(team)
    assert lines[team.namespace, QUOTA, f"limits.{MEMORY}"] == 10_000


async def test_a_dry_run_is_judged_and_charges_nothing(team: Team) -> None:
    await team.limit(PLENTY)
    space = TeamWorkloads(team)
    answer = await space.create(replicated("Deployment", 3), params={"dryRun": "All"})
    assert answer.status == 201
    answer = await space.create(replicated("Deployment", 1001), params={"dryRun": "All"})
    assert answer.status == 403
    assert await space.cluster.items(space.path("Deployment")) == []
    assert await cards_used(space.team) == 0


async def test_a_daemon_set_is_charged_by_its_pods(space: TeamWorkloads) -> None:
    nodes = [f"{space.team.namespace}-{number}" for number in range(2)]
    for name in nodes:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"e": name}},
        }
        await space.cluster.must("POST", "/api/v1/nodes", node)
    try:
        await space.created(replicated("DaemonSet", 0, cards=2))
        await space.pods_are(2)
        assert await cards_used(space.team) == 4
        await space.delete("DaemonSet", "web")
        await space.pods_are(0)
        assert await cards_used(space.team) == 0
    finally:
        for name in nodes:
            await space.cluster.must("DELETE", f"/api/v1/nodes/{name}")
