"""Kinds whose definitions are installed, changed and deleted."""

import asyncio

import msgspec
from support.fakes.full_cluster import (
    DEPLOYMENTS,
    JOBSETS,
    REPLICASETS,
    deployment,
    template,
    workload,
)
from support.harness.settlement import CLUSTER, full_world, settling

from ledger.core.model.commands import Reserve
from ledger.core.model.events import Cause
from ledger.kube.api.api_resources import UNIVERSE_QUOTAS
from ledger.kube.api.cluster_errors import ClusterUnavailable
from webhook.settlement import root_lookup
from webhook.settlement.workloads import workload_informers

KEY = "jobsets.jobset.x-k8s.io/js"
TWO = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 2000}
JOB = {"parallelism": 2, "completions": 2, "template": template()}
BODY = workload(JOBSETS, "js", replicatedJobs=[{"name": "w", "template": {"spec": JOB}}])


def charged(world, key: str) -> dict:
    entry = world.root(key)
    return entry.committed.demand if entry is not None and entry.committed is not None else {}


async def test_kind_is_watched_when_defined_later(monkeypatch):
    monkeypatch.setattr(workload_informers, "DISCOVER_SECONDS", 0.05)
    async with full_world() as world, settling(world):
        await world.synced()
        world.cluster.kinds[JOBSETS.name] = JOBSETS
        world.server.create(JOBSETS.name, "red", BODY)
        await world.until(lambda: charged(world, KEY) == TWO)
        await world.until(lambda: world.settlement.problems() == [])


async def test_objects_are_released_when_their_kind_is_proved_deleted(monkeypatch):
    monkeypatch.setattr(workload_informers, "DISCOVER_SECONDS", 0.05)
    async with full_world() as world:
        world.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(world):
            await world.synced()
            world.server.create(JOBSETS.name, "red", BODY, "js-uid")
            await world.until(lambda: charged(world, KEY) == TWO)
            del world.cluster.kinds[JOBSETS.name]
            await world.until(lambda: world.root(KEY) is None)
            assert world.state.ended["js-uid"].cause == Cause.DELETED
            await world.until(lambda: world.settlement.problems() == [])


async def test_absent_kind_releases_nothing_without_proof(monkeypatch):
    monkeypatch.setattr(workload_informers, "DISCOVER_SECONDS", 0.05)
    async with full_world(recount_seconds=0.3) as world:
        world.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(world):
            await world.synced()
            world.server.create(JOBSETS.name, "red", BODY)
            await world.until(lambda: charged(world, KEY) == TWO)
            world.cluster.unproved = True
            del world.cluster.kinds[JOBSETS.name]
            await asyncio.sleep(1.0)  # some recounts, to give a wrong release its chance
            assert charged(world, KEY) == TWO


async def test_kind_is_proved_deleted_when_removed_during_a_gap():
    async with full_world() as world:
        world.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(world):
            await world.synced()
            world.server.create(JOBSETS.name, "red", BODY)
            await world.until(lambda: charged(world, KEY) == TWO)
        del world.cluster.kinds[JOBSETS.name]
        async with settling(world):
            await world.until(lambda: world.root(KEY) is None)


async def test_kind_is_watched_in_the_version_that_is_served(monkeypatch):
    monkeypatch.setattr(workload_informers, "DISCOVER_SECONDS", 0.05)
    async with full_world() as world:
        world.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(world):
            await world.synced()
            world.server.create(JOBSETS.name, "red", BODY)
            await world.until(lambda: charged(world, KEY) == TWO)
            world.cluster.unproved = True
            world.cluster.kinds[JOBSETS.name] = msgspec.structs.replace(JOBSETS, version="v1")
            world.server.update(JOBSETS.name, "red", "js", spec={"suspend": True})
            await world.until(lambda: charged(world, KEY) == {})


async def test_creation_is_released_when_its_kind_is_proved_deleted(monkeypatch):
    monkeypatch.setattr(workload_informers, "DISCOVER_SECONDS", 0.05)
    async with full_world(settle_seconds=0.3) as world:
        world.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(world):
            await world.synced()
            del world.cluster.kinds[JOBSETS.name]
            await world.writer.submit(Reserve(f"{CLUSTER}/red", KEY, "js-uid", TWO))
            await world.until(lambda: world.root(KEY) is None)
            assert world.state.ended["js-uid"].cause == Cause.ABSENT


async def test_creation_stays_when_its_kind_is_absent_without_proof():
    async with full_world(settle_seconds=0.1) as world:
        world.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(world):
            await world.synced()
            world.cluster.unproved = True
            del world.cluster.kinds[JOBSETS.name]
            await world.writer.submit(Reserve(f"{CLUSTER}/red", KEY, "js-uid", TWO))
            await world.until(lambda: world.counted["settle_failures_total",] > 0)
            assert world.root(KEY).holds


async def test_readiness_shows_why_discovery_failed(monkeypatch):
    monkeypatch.setattr(workload_informers, "RETRY_SECONDS", 0.05)
    async with full_world() as world:
        world.cluster.undiscovered = ClusterUnavailable("the API server is down")
        async with settling(world):
            expected = "kinds: the API server is down"
            await world.until(lambda: expected in world.settlement.warnings())
            world.cluster.undiscovered = None
            await world.synced()


async def test_forbidden_kind_is_shown_and_delays_no_other_kind():
    async with full_world() as world:
        world.cluster.forbidden[JOBSETS.name] = "403 Forbidden"
        world.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(world):
            expected = [f"{JOBSETS.name}: 403 Forbidden"]
            await world.until(lambda: world.settlement.warnings() == expected)
            await world.until(lambda: world.settlement.problems() == [])


async def test_undefined_universe_quotas_are_not_a_problem():
    async with full_world() as world:
        world.cluster.unproved = True
        del world.cluster.kinds[UNIVERSE_QUOTAS.name]
        async with settling(world):
            await world.synced()
            assert world.settlement.problems() == []


async def test_pods_wait_for_their_owners_and_need_no_reads():
    async with full_world() as world:
        web = world.server.create(DEPLOYMENTS.name, "red", deployment("web", 60))
        owned = workload(REPLICASETS, "web-1", web, replicas=60, template=template())
        made = world.server.create(REPLICASETS.name, "red", owned)
        for number in range(60):
            body = workload(DEPLOYMENTS, f"web-1-{number}", made)
            body["spec"] = template()["spec"]
            world.server.create("pods", "red", body)
        async with settling(world):
            await world.synced()
            assert {world.entry(f"web-1-{number}").root for number in range(60)} == {
                "deployments.apps/web"
            }
            assert world.cluster.reads == 0


async def test_pods_wait_until_their_owners_are_cached():
    async with full_world() as world:
        remembered = False
        world.context.parents.is_current = lambda resource: remembered
        async with settling(world):
            expected = ["pods: not listed yet"]
            await world.until(lambda: world.settlement.problems() == expected)
            await asyncio.sleep(0.3)  # to give a list that comes too early its chance
            assert world.settlement.problems() == expected
            remembered = True
            await world.synced()


async def test_pods_are_charged_in_time_when_their_owners_are_unlisted(monkeypatch):
    monkeypatch.setattr(workload_informers, "OWNERS_SECONDS", 0.2)
    monkeypatch.setattr(root_lookup, "READ_SECONDS", 0.2)
    async with full_world() as world:
        world.context.parents.is_current = lambda resource: False
        async with settling(world):
            body = workload(DEPLOYMENTS, "p")
            body["spec"] = template()["spec"]
            world.server.create("pods", "red", body)
            await world.until(lambda: world.entry("p") is not None)
