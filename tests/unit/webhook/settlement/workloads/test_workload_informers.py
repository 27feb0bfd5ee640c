"""Kinds whose definitions come, change and go."""

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
from ledger.kube.api.errors import ClusterUnavailable
from ledger.kube.api.resources import UNIVERSE_QUOTAS
from webhook.settlement import root_lookup
from webhook.settlement.workloads import workload_informers

KEY = "jobsets.jobset.x-k8s.io/js"
TWO = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 2000}
JOB = {"parallelism": 2, "completions": 2, "template": template()}
BODY = workload(JOBSETS, "js", replicatedJobs=[{"name": "w", "template": {"spec": JOB}}])


def charged(one, key: str) -> dict:
    entry = one.root(key)
    return entry.committed.demand if entry is not None and entry.committed is not None else {}


async def test_a_kind_that_is_defined_later_is_found(monkeypatch):
    monkeypatch.setattr(workload_informers, "DISCOVER_SECONDS", 0.05)
    async with full_world() as one, settling(one):
        await one.synced()
        one.cluster.kinds[JOBSETS.name] = JOBSETS
        one.server.create(JOBSETS.name, "red", BODY)
        await one.until(lambda: charged(one, KEY) == TWO)
        await one.until(lambda: one.settlement.problems() == [])


async def test_objects_of_a_kind_end_when_its_definition_is_proved_gone(monkeypatch):
    monkeypatch.setattr(workload_informers, "DISCOVER_SECONDS", 0.05)
    async with full_world() as one:
        one.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(one):
            await one.synced()
            one.server.create(JOBSETS.name, "red", BODY, "js-uid")
            await one.until(lambda: charged(one, KEY) == TWO)
            del one.cluster.kinds[JOBSETS.name]
            await one.until(lambda: one.root(KEY) is None)
            assert one.state.ended["js-uid"].cause == Cause.DELETED
            await one.until(lambda: one.settlement.problems() == [])


async def test_a_kind_that_is_absent_without_proof_deletes_nothing(monkeypatch):
    monkeypatch.setattr(workload_informers, "DISCOVER_SECONDS", 0.05)
    async with full_world(recount_seconds=0.3) as one:
        one.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(one):
            await one.synced()
            one.server.create(JOBSETS.name, "red", BODY)
            await one.until(lambda: charged(one, KEY) == TWO)
            one.cluster.unproved = True
            del one.cluster.kinds[JOBSETS.name]
            await asyncio.sleep(1.0)  # some recounts, to give a wrong release its chance
            assert charged(one, KEY) == TWO


async def test_a_kind_that_was_removed_while_nobody_looked_is_proved_gone():
    async with full_world() as one:
        one.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(one):
            await one.synced()
            one.server.create(JOBSETS.name, "red", BODY)
            await one.until(lambda: charged(one, KEY) == TWO)
        del one.cluster.kinds[JOBSETS.name]
        async with settling(one):
            await one.until(lambda: one.root(KEY) is None)


async def test_a_kind_that_is_served_in_another_version_is_watched_in_that(monkeypatch):
    monkeypatch.setattr(workload_informers, "DISCOVER_SECONDS", 0.05)
    async with full_world() as one:
        one.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(one):
            await one.synced()
            one.server.create(JOBSETS.name, "red", BODY)
            await one.until(lambda: charged(one, KEY) == TWO)
            one.cluster.unproved = True
            one.cluster.kinds[JOBSETS.name] = msgspec.structs.replace(JOBSETS, version="v1")
            one.server.update(JOBSETS.name, "red", "js", spec={"suspend": True})
            await one.until(lambda: charged(one, KEY) == {})


async def test_a_creation_of_a_kind_that_is_gone_is_released_by_that_proof(monkeypatch):
    monkeypatch.setattr(workload_informers, "DISCOVER_SECONDS", 0.05)
    async with full_world(settle_seconds=0.3) as one:
        one.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(one):
            await one.synced()
            del one.cluster.kinds[JOBSETS.name]
            await one.writer.submit(Reserve(f"{CLUSTER}/red", KEY, "js-uid", TWO))
            await one.until(lambda: one.root(KEY) is None)
            assert one.state.ended["js-uid"].cause == Cause.ABSENT


async def test_a_creation_of_a_kind_that_is_absent_without_proof_stays():
    async with full_world(settle_seconds=0.1) as one:
        one.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(one):
            await one.synced()
            one.cluster.unproved = True
            del one.cluster.kinds[JOBSETS.name]
            await one.writer.submit(Reserve(f"{CLUSTER}/red", KEY, "js-uid", TWO))
            await one.until(lambda: one.counted["settle_failures_total",] > 0)
            assert one.root(KEY).holds


async def test_readiness_says_that_kinds_are_not_known_and_why(monkeypatch):
    monkeypatch.setattr(workload_informers, "RETRY_SECONDS", 0.05)
    async with full_world() as one:
        one.cluster.undiscovered = ClusterUnavailable("the API server is down")
        async with settling(one):
            expected = "kinds: the API server is down"
            await one.until(lambda: expected in one.settlement.warnings())
            one.cluster.undiscovered = None
            await one.synced()


async def test_a_kind_that_may_not_be_read_is_told_and_keeps_nothing_else_from_working():
    async with full_world() as one:
        one.cluster.forbidden[JOBSETS.name] = "403 Forbidden"
        one.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(one):
            expected = [f"{JOBSETS.name}: 403 Forbidden"]
            await one.until(lambda: one.settlement.warnings() == expected)
            await one.until(lambda: one.settlement.problems() == [])


async def test_universe_quotas_that_are_not_defined_are_no_problem():
    async with full_world() as one:
        one.cluster.unproved = True
        del one.cluster.kinds[UNIVERSE_QUOTAS.name]
        async with settling(one):
            await one.synced()
            assert one.settlement.problems() == []


async def test_pods_wait_for_what_owns_them_and_find_their_roots_without_asking():
    async with full_world() as one:
        web = one.server.create(DEPLOYMENTS.name, "red", deployment("web", 60))
        owned = workload(REPLICASETS, "web-1", web, replicas=60, template=template())
        made = one.server.create(REPLICASETS.name, "red", owned)
        for number in range(60):
            body = workload(DEPLOYMENTS, f"web-1-{number}", made)
            body["spec"] = template()["spec"]
            one.server.create("pods", "red", body)
        async with settling(one):
            await one.synced()
            assert {one.entry(f"web-1-{number}").root for number in range(60)} == {
                "deployments.apps/web"
            }
            assert one.cluster.reads == 0


async def test_pods_wait_until_their_owners_are_remembered():
    async with full_world() as one:
        remembered = False
        one.context.parents.is_current = lambda resource: remembered
        async with settling(one):
            expected = ["pods: not listed yet"]
            await one.until(lambda: one.settlement.problems() == expected)
            await asyncio.sleep(0.3)  # to give a list that comes too early its chance
            assert one.settlement.problems() == expected
            remembered = True
            await one.synced()


async def test_pods_are_told_in_time_although_their_owners_are_not(monkeypatch):
    monkeypatch.setattr(workload_informers, "OWNERS_SECONDS", 0.2)
    monkeypatch.setattr(root_lookup, "READ_SECONDS", 0.2)
    async with full_world() as one:
        one.context.parents.is_current = lambda resource: False
        async with settling(one):
            body = workload(DEPLOYMENTS, "p")
            body["spec"] = template()["spec"]
            one.server.create("pods", "red", body)
            await one.until(lambda: one.entry("p") is not None)
