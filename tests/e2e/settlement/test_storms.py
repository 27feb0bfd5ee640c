"""Many clients do what comes into their heads while the service is killed over and over."""

import asyncio
import random
from typing import Final

import pytest

from tests.e2e.harness.agreement import assert_ledger_is_cluster
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.service import Row
from tests.e2e.objects.fake_operators import operator_of
from tests.e2e.objects.pods import CARDS, pod
from tests.e2e.objects.team import Team
from tests.e2e.objects.workloads import (
    TeamWorkloads,
    controlled_by,
    job,
    replicated,
    template,
    workload,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LINE: Final = f"limits.{CARDS}"
CARDS_MAX: Final = 12
KILLS: Final = 3
CHANGES_BETWEEN_KILLS: Final = 15
CHANGES_SECONDS: Final = 30.0
KINDS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "Job", "RayCluster")
SEEDS: Final = [4, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 15))]


def ray(workers: int) -> Manifest:
    """Return the spec of a RayCluster: a head without cards, and workers with one."""
    head = {"spec": {"containers": [{"name": "plain", "image": "busybox"}]}}
    group = {"replicas": workers, "minReplicas": 0, "maxReplicas": 9, "template": template()}
    return {"headGroupSpec": {"template": head}, "workerGroupSpecs": [group]}


class Storm:
    """Clients, one for each workload, that create, scale, change and delete it at random."""

    def __init__(self, space: TeamWorkloads, seed: int) -> None:
        self._space = space
        self._random = random.Random(seed)
        self._stopping = False
        self._changed = asyncio.Condition()
        self._made = 0
        self.changes = 0
        self.admitted: set[str] = set()
        """The kinds of which something was admitted."""

    async def client(self, kind: str) -> None:
        """Do one thing after another until `stop`; refusals and failures are part of it."""
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
            change: Manifest = {"suspend": self._random.random() < 0.5}
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


@pytest.mark.parametrize("seed", SEEDS)
async def test_kills_in_the_middle_of_a_storm_lose_nothing(team: Team, seed: int) -> None:
    await team.limit({LINE: str(CARDS_MAX)})
    space = TeamWorkloads(team)
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
    assert len(storm.admitted) >= len(KINDS) // 2, "a storm in which little comes in shows nothing"
    await assert_ledger_is_cluster(team)
    assert await beyond(team, CARDS_MAX) == []


async def beyond(team: Team, limit: int) -> list[Row]:
    """Return the reservations that went over a limit; what is seen to exist may."""
    events = await team.service.get("/v1/events", namespace=team.namespace, limit="5000")
    return [
        event
        for event in events
        if event["type"] == "Reserved"
        and any(
            posting["delta"] > 0 and posting["used_after"] > limit for posting in event["postings"]
        )
    ]
