"""Many writers at once while the service is killed, and a cluster that went on without it."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.e2e.agreement import assert_ledger_is_cluster
from tests.e2e.cluster import Cluster, Manifest
from tests.e2e.opening import webhooks_are_in_effect
from tests.e2e.played import operator_of
from tests.e2e.pods import CARDS, pod
from tests.e2e.polling import eventually
from tests.e2e.service import Row
from tests.e2e.team import QUOTA, SEEN_SECONDS, Team
from tests.e2e.workloads import Space, controlled_by, job, replicated, template, workload

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LINE: Final = f"limits.{CARDS}"
CARDS_MAX: Final = 12
KILLS: Final = 4
CHANGES_BETWEEN_KILLS: Final = 15
CHANGES_SECONDS: Final = 30.0
KINDS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "Job", "RayCluster")
SEEDS: Final = [4, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 15))]
CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def ray(workers: int) -> Manifest:
    """Return the spec of a RayCluster: a head without cards, and workers with one."""
    head = {"spec": {"containers": [{"name": "plain", "image": "busybox"}]}}
    group = {"replicas": workers, "minReplicas": 0, "maxReplicas": 9, "template": template()}
    return {"headGroupSpec": {"template": head}, "workerGroupSpecs": [group]}


class Storm:
    """Clients, one for each workload, that create, scale, change and delete it at random."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._random = random.Random(seed)
        self._stopping = False
        self._changed = asyncio.Condition()
        self._made = 0
        self.changes = 0
        self.admitted: set[str] = set()
        """The kinds of which something was admitted."""

    async def client(self, kind: str) -> None:
        """Do one thing after another until told to stop; refusals and failures are part of it."""
        name = kind.lower()
        ways = [self._create, self._scale, self._scale, self._change, self._delete]
        while not self._stopping:
            await self._random.choice(ways)(kind, name)
            async with self._changed:
                self.changes += 1
                self._changed.notify_all()

    async def go_on(self, changes: int) -> None:
        """Return when so many more things were done."""
        goal = self.changes + changes
        async with asyncio.timeout(CHANGES_SECONDS), self._changed:
            await self._changed.wait_for(lambda: self.changes >= goal)

    def stop(self) -> None:
        """Let every client finish what it does."""
        self._stopping = True

    async def _create(self, kind: str, name: str) -> None:
        count = self._random.randint(0, 5)
        if kind == "Job":
            manifest = job(count, name)
        elif kind == "RayCluster":
            manifest = workload(kind, name, **ray(count))
        else:
            manifest = replicated(kind, count, name)
        if (await self._space.create(manifest)).status == 201:
            self.admitted.add(kind)

    async def _scale(self, kind: str, name: str) -> None:
        count = self._random.randint(0, 5)
        if kind == "Job":
            await self._space.change(kind, name, {"spec": {"parallelism": count}})
        elif kind == "RayCluster":
            await self._space.change(kind, name, {"spec": ray(count)})
        else:
            await self._space.scale(kind, name, count)

    async def _change(self, kind: str, name: str) -> None:
        if kind == "RayCluster":
            await self._play_operator(kind, name)
            return
        if kind == "Job":
            change = {"suspend": self._random.random() < 0.5}
        else:
            metadata = {"labels": {"version": str(self._random.randint(0, 3))}}
            change = {"template": {"metadata": metadata}}
        await self._space.change(kind, name, {"spec": change})

    async def _play_operator(self, kind: str, name: str) -> None:
        """Make a pod of a RayCluster, and take one away."""
        owner = await self._space.cluster.ask("GET", self._space.path(kind, name))
        if owner.status != 200:
            return
        self._made += 1
        references = controlled_by(owner.body)
        made = pod(f"{name}-{self._made}", ownerReferences=references)
        await self._space.as_user(operator_of(kind)).create(made)
        await self._space.team.delete(f"{name}-{self._random.randint(1, self._made)}")

    async def _delete(self, kind: str, name: str) -> None:
        how = self._random.choice(["Background", "Foreground", "Orphan"])
        path = self._space.path(kind, name)
        await self._space.cluster.ask("DELETE", path, {"propagationPolicy": how})


@pytest.fixture
async def registered(team: Team) -> AsyncIterator[None]:
    """Register the webhooks again in the end."""
    yield
    if team.service.runs:
        team.service.kill()
    await team.service.run_again()
    await webhooks_are_in_effect(team.cluster)


@pytest.mark.parametrize("seed", SEEDS)
async def test_kills_in_the_middle_of_a_storm_lose_nothing(team: Team, seed: int) -> None:
    await team.limit({LINE: str(CARDS_MAX)})
    space = Space(team)
    storm = Storm(space, seed)
    async with space.kubelet(), asyncio.TaskGroup() as clients:
        for kind in KINDS:
            clients.create_task(storm.client(kind))
        for _ in range(KILLS):
            await storm.go_on(CHANGES_BETWEEN_KILLS)
            team.service.kill()
            await storm.go_on(len(KINDS))
            await team.service.run_again()
        await storm.go_on(CHANGES_BETWEEN_KILLS)
        storm.stop()
    assert storm.admitted == set(KINDS), "a storm in which nothing comes in shows nothing"
    await assert_ledger_is_cluster(team)
    assert await beyond(team, CARDS_MAX) == []


async def test_what_happened_without_the_service_is_corrected_and_listed(
    team: Team, registered: None
) -> None:
    await team.limit({LINE: str(CARDS_MAX)})
    space = Space(team)
    for name in ("stays", "grows", "goes"):
        await space.created(replicated("Deployment", 2, name))
    await space.created(job(2, "ends"))
    await space.pods_are(8)
    await assert_ledger_is_cluster(team)
    team.service.kill()
    await bypass(team.cluster, space)
    assert (await space.scale("Deployment", "grows", 6)).status == 200
    await space.delete("Deployment", "goes")
    await space.created(replicated("StatefulSet", 3, "comes"))
    for found in await space.live():
        if found["metadata"]["name"].startswith("ends"):
            await team.finish(found["metadata"]["name"])
    await space.gone("Deployment", "goes")
    await space.pods_are(11)
    await team.service.run_again()
    await webhooks_are_in_effect(team.cluster)
    lines = await assert_ledger_is_cluster(team)
    assert lines[team.namespace, QUOTA, LINE] == 11
    assert await team.service.metric('gpuledger_drift_total{cause="unreserved"}') >= 2
    drift = await team.service.answer("drift", f"--namespace={team.namespace}")
    corrected = {row["key"]: row["cause"] for row in drift}
    assert corrected["statefulsets.apps/comes"] == "unreserved"
    assert corrected["deployments.apps/grows"] == "unreserved"
    assert "deployments.apps/goes" in corrected
    assert "deployments.apps/stays" not in corrected
    assert (await team.create(pod("late", cards=2))).status == 403


async def test_a_limit_that_was_passed_without_the_webhook_blocks_until_it_holds_again(
    team: Team, registered: None
) -> None:
    await team.limit({LINE: "4"})
    space = Space(team)
    await bypass(team.cluster, space)
    await space.created(replicated("Deployment", 6))
    await space.pods_are(6)
    lines = await assert_ledger_is_cluster(team)
    assert lines[team.namespace, QUOTA, LINE] == 6
    team.service.kill()
    await team.service.run_again()
    await webhooks_are_in_effect(team.cluster)
    refused = await team.create(pod("late"))
    assert refused.status == 403
    assert "requested 1, used 6 of 4" in refused.message
    assert (await space.scale("Deployment", "web", 3)).status == 200
    await space.pods_are(3)
    lines = await assert_ledger_is_cluster(team)
    assert lines[team.namespace, QUOTA, LINE] == 3
    await team.created(pod("late"))


async def beyond(team: Team, limit: int) -> list[Row]:
    """Return the reservations that went over a limit; what is seen to exist may."""
    events = await team.service.get("/v1/events", namespace=team.namespace, limit="5000")
    return [
        event
        for event in events
        if event["type"] == "Reserved"
        and any(one["delta"] > 0 and one["used_after"] > limit for one in event["postings"])
    ]


async def bypass(cluster: Cluster, space: Space) -> None:
    """Remove the product's webhooks, and return when the API server goes without them."""
    for kind in ("validating", "mutating"):
        path = CONFIGURATIONS.replace("validating", kind)
        await cluster.must("DELETE", f"{path}/gpuledger")

    async def look() -> int:
        beyond = replicated("Deployment", CARDS_MAX + 1, "probe")
        return (await space.create(beyond, params={"dryRun": "All"})).status

    await eventually(
        look, lambda status: status == 201, within=SEEN_SECONDS, what="nobody is asked any more"
    )
