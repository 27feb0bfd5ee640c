"""Quotas over many namespaces: their usage, denials and statuses, while labels change."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.e2e.harness.agreement import REGION, assert_ledger_is_cluster
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.second_webhook import SecondWebhook
from tests.e2e.harness.service import CLUSTER, Service
from tests.e2e.objects.definitions import QUOTAS, quota
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.policies import under
from tests.e2e.objects.team import QUOTA, SEEN_SECONDS, Team
from tests.e2e.objects.workloads import TeamWorkloads, replicated

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"
STATUS_SECONDS: Final = 20.0
RESTARTED_SECONDS: Final = 60.0
"""How long a service that was killed may take until it has looked over the cluster again."""


@pytest.fixture
async def other(cluster: Cluster, service: Service, later: SecondWebhook) -> Team:
    """Make a second namespace."""
    name = f"other-{uuid.uuid4().hex[:8]}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await cluster.must("POST", "/api/v1/namespaces", namespace)
    return Team(name, cluster, service, later)


@asynccontextmanager
async def universe(team: Team, cards: int, **selecting: Any) -> AsyncIterator[str]:
    """Make a quota over the selected namespaces, and wait until the ledger has it."""
    manifest = quota(hard={LINE: str(cards)}, **selecting)
    made = await team.cluster.must("POST", QUOTAS, manifest)
    name = str(made["metadata"]["name"])
    try:
        await known(team, name, [cards])
        if "objectSelector" in selecting:
            await used_is(team, name, 0)  # what has other labels was read again
        yield name
    finally:
        await team.cluster.must("DELETE", f"{QUOTAS}/{name}")
        await known(team, name, [])


async def known(team: Team, name: str, limits: list[int]) -> None:
    """Wait until the ledger has these limits of a quota over many namespaces."""

    async def look() -> list[int]:
        rows = await team.service.get("/v1/usage", limit="5000")
        return [row["limit"] for row in rows if (row["namespace"], row["quota"]) == ("", name)]

    await eventually(
        look, lambda seen: seen == limits, within=SEEN_SECONDS, what=f"{name} has {limits}"
    )


async def label(team: Team, **labels: str | None) -> None:
    path = f"/api/v1/namespaces/{team.namespace}"
    answer = await team.cluster.patch(path, {"metadata": {"labels": labels}})
    assert answer.status == 200, answer


async def used(name: str, *teams: Team) -> int:
    return (await assert_ledger_is_cluster(*teams))["", name, LINE]


async def test_two_namespaces_share_a_limit_whose_status_lists_their_usage(
    team: Team, other: Team
) -> None:
    both = sorted((team.namespace, other.namespace))
    async with universe(team, 5, namespaces=both) as name:
        await TeamWorkloads(team).created(replicated("Deployment", 3))
        refused = await TeamWorkloads(other).create(replicated("Deployment", 3))
        assert refused.status == 403
        assert name in refused.message
        assert "allows 5, 3 are used" in refused.message
        await other.created(pod("alone"))
        await TeamWorkloads(team).pods_are(3)
        assert await used(name, team, other) == 4
        by_name = {team.namespace: "3", other.namespace: "1"}
        row = {
            "name": CLUSTER,
            "used": {LINE: "4"},
            "namespaces": [
                {"name": namespace, "used": {LINE: by_name[namespace]}} for namespace in both
            ],
        }

        async def status() -> Manifest:
            stored: Manifest = await team.cluster.must("GET", f"{QUOTAS}/{name}")
            told = stored.get("status", {})
            for cluster in told.get("clusters", ()):
                cluster["namespaces"] = sorted(
                    cluster.get("namespaces", ()), key=lambda usage: str(usage["name"])
                )
            return {key: told.get(key) for key in ("hard", "used", "clusters")}

        wanted = {"hard": {LINE: "5"}, "used": {LINE: "4"}, "clusters": [row]}
        await eventually(
            status, lambda seen: seen == wanted, within=STATUS_SECONDS, what=f"status {wanted}"
        )


async def test_an_object_counts_on_its_namespaces_quotas_and_on_all_over_them(
    team: Team,
) -> None:
    await team.limit({LINE: "9"})
    here, group = [team.namespace], {"group": uuid.uuid4().hex[:8]}
    chosen: dict[str, Any] = {"regions": [REGION], "objectSelector": {"matchLabels": group}}
    async with universe(team, 4, namespaces=here) as wide, universe(team, 3, **chosen) as low:
        space, grouped = TeamWorkloads(team), replicated("StatefulSet", 4)
        grouped["metadata"]["labels"] = group
        refused = await space.create(grouped)
        assert refused.status == 403
        assert low in refused.message
        assert wide not in refused.message
        grouped["spec"]["replicas"] = 3
        await space.created(grouped)
        refused = await space.create(replicated("StatefulSet", 2, "other"))
        assert refused.status == 403
        assert wide in refused.message
        assert low not in refused.message
        lines = await assert_ledger_is_cluster(team)
        for line in (("", wide, LINE), ("", low, LINE), (team.namespace, QUOTA, LINE)):
            assert lines[line] == 3


async def test_labels_of_a_namespace_move_its_usage_at_once(team: Team, other: Team) -> None:
    group = uuid.uuid4().hex[:8]
    selector = {"matchLabels": {"group": group}}
    async with universe(team, 4, namespaceSelector=selector) as name:
        await TeamWorkloads(team).created(replicated("ReplicaSet", 3))
        await TeamWorkloads(other).created(replicated("ReplicaSet", 2))
        assert await used(name, team, other) == 0
        await label(team, group=group)
        await label(other, group=group)
        await used_is(team, name, 5)
        assert await used(name, team, other) == 5
        assert (await team.create(pod("alone"))).status == 403
        await label(other, group=None)
        await used_is(team, name, 3)
        await team.created(pod("alone"))
        assert await used(name, team, other) == 4


async def used_is(team: Team, name: str, cards: int) -> None:
    async def look() -> list[int]:
        rows = await team.service.get("/v1/usage", limit="5000")
        return [row["used"] for row in rows if (row["namespace"], row["quota"]) == ("", name)]

    await eventually(
        look, lambda seen: seen == [cards], within=SEEN_SECONDS, what=f"{name} counts {cards}"
    )


async def test_an_application_is_limited_across_namespaces_by_its_labels(
    team: Team, other: Team
) -> None:
    group = uuid.uuid4().hex[:8]
    selector = {"matchLabels": {"group": group}}
    async with universe(team, 3, objectSelector=selector) as name:
        grouped = replicated("Deployment", 2)
        grouped["metadata"]["labels"] = {"group": group}
        await TeamWorkloads(team).created(grouped)
        await TeamWorkloads(team).created(replicated("Deployment", 4, "free"))
        assert (await other.create(pod("more", cards=2, labels={"group": group}))).status == 403
        await other.created(pod("more", labels={"group": group}))
        await TeamWorkloads(team).pods_are(6)
        assert await used(name, team, other) == 3


async def test_pods_of_an_uncharged_workload_are_counted_by_their_own_labels(
    team: Team,
) -> None:
    groups = [uuid.uuid4().hex[:8] for _ in range(2)]
    selectors = [{"matchLabels": {"group": group}} for group in groups]
    made = replicated("ReplicaSet", 2)
    made["metadata"]["labels"] = {"group": groups[0]}
    made["spec"]["template"]["metadata"]["labels"]["group"] = groups[1]
    async with (
        under(team, {LINE: "9"}, podsOnly=True),
        universe(team, 9, objectSelector=selectors[0]) as of_root,
        universe(team, 9, objectSelector=selectors[1]) as of_pods,
    ):
        await TeamWorkloads(team).created(made)
        await TeamWorkloads(team).pods_are(2)
        assert await used(of_pods, team) == 2
        assert await used(of_root, team) == 0


async def test_a_quota_for_another_cluster_counts_nothing_here(team: Team) -> None:
    async with universe(team, 1, clusters=["elsewhere"]) as name:
        await TeamWorkloads(team).created(replicated("Deployment", 3))
        assert await used(name, team) == 0


async def test_a_scale_without_review_takes_no_shared_headroom(team: Team, other: Team) -> None:
    """Scales fail open. One that no review saw counts for its own namespace, and not for others."""
    await team.limit({LINE: "1"})
    async with universe(team, 5, namespaces=[team.namespace, other.namespace]) as name:
        space = TeamWorkloads(team)
        await space.created(replicated("Deployment", 1))
        await space.pods_are(1)
        await used_is(team, name, 1)
        team.service.kill()
        assert (await space.scale("Deployment", "web", 6)).status == 200
        await team.service.run_again()

        async def own() -> list[int]:
            return [row["used"] for row in await team.usage() if row["quota"] == QUOTA]

        what = "the namespace's own quota counts what its Deployment may run"
        await eventually(own, lambda seen: seen == [6], within=RESTARTED_SECONDS, what=what)
        await used_is(team, name, 1)
        await TeamWorkloads(other).created(replicated("Deployment", 4))
        await used_is(team, name, 5)
        assert (await other.create(pod("more"))).status == 403


async def test_two_namespaces_at_once_never_get_more_than_there_is(team: Team, other: Team) -> None:
    both = [team.namespace, other.namespace]
    async with universe(team, 7, namespaces=both) as name:
        answers = await asyncio.gather(
            *(
                TeamWorkloads(member).create(replicated("ReplicaSet", 1, f"r-{number}", cards=2))
                for number in range(4)
                for member in (team, other)
            )
        )
        assert sorted(answer.status for answer in answers) == [201] * 3 + [403] * 5
        assert await used(name, team, other) == 6
