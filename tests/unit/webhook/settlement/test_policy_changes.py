"""Workloads are charged as the policies of their namespaces say, also when these change."""

import asyncio

from support.fakes.full_cluster import DEPLOYMENTS, deployment, template, workload
from support.harness.settlement import CLUSTER, full_world, settling

from ledger.kube.api.resources import NAMESPACES, POLICIES, Resource
from webhook.settlement.drift_counter import UNENFORCED

RAYS = Resource("ray.io", "v1", "rayclusters", "RayCluster")
WEB = "deployments.apps/web"
RAY = "rayclusters.ray.io/r"
TWO = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 2000}
THREE = {"nvidia.com/gpu": 3, "nvidia.com/gpumem": 3000}


def policy(one, name: str = "p", **spec) -> None:
    body = {"metadata": {"name": name}, "spec": {"namespaces": ["red"]} | spec}
    one.server.create(POLICIES.name, "", body)


def charged(one, key: str = WEB) -> dict | None:
    entry = one.root(key)
    return entry.committed.demand if entry is not None and entry.committed is not None else None


async def test_where_pods_alone_count_workloads_are_charged_nothing_until_that_is_over():
    async with full_world() as one, settling(one):
        await one.synced()
        one.server.create(DEPLOYMENTS.name, "red", deployment("web"))
        await one.until(lambda: charged(one) == TWO)
        policy(one, podsOnly=True)
        await one.until(lambda: charged(one) == {})
        one.server.delete(POLICIES.name, "", "p")
        await one.until(lambda: charged(one) == TWO)


async def test_workloads_are_told_only_when_it_is_known_how_they_are_treated():
    async with full_world() as one:
        known, honest = asyncio.Event(), one.cluster.watch_policies

        async def watch_policies():
            await known.wait()
            async for change in honest():
                yield change

        one.cluster.watch_policies = watch_policies
        policy(one, podsOnly=True)
        one.server.create(DEPLOYMENTS.name, "red", deployment("web"))
        async with settling(one):
            await one.until(lambda: CLUSTER in one.state.described)
            await asyncio.sleep(0.3)  # to give a list that comes too early its chance
            known.set()
            await one.synced()
            assert charged(one) is None
            assert one.drift == {}


async def test_where_pods_wait_for_room_workloads_are_charged_nothing():
    async with full_world() as one, settling(one):
        await one.synced()
        one.server.create(DEPLOYMENTS.name, "red", deployment("web"))
        await one.until(lambda: charged(one) == TWO)
        policy(one, onExceeded="pending")
        await one.until(lambda: charged(one) == {})


async def test_surge_is_charged_where_it_is_reserved():
    async with full_world() as one:
        policy(one, surge="reserve")
        async with settling(one):
            await one.synced()
            body = deployment("web")
            body["metadata"]["generation"] = 2
            body["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1}}
            one.server.create(DEPLOYMENTS.name, "red", body)
            await one.until(lambda: charged(one) == THREE)
            done = {"observedGeneration": 2, "updatedReplicas": 2, "replicas": 2}
            one.server.update(DEPLOYMENTS.name, "red", "web", status=done)
            await one.until(lambda: charged(one) == TWO)


async def test_the_most_that_an_autoscaler_may_make_is_charged_where_policy_says_so():
    async with full_world() as one:
        one.cluster.kinds[RAYS.name] = RAYS
        policy(one, elastic="max")
        async with settling(one):
            await one.synced()
            group = {"replicas": 1, "maxReplicas": 3, "template": template()}
            body = workload(RAYS, "r", enableInTreeAutoscaling=True, workerGroupSpecs=[group])
            one.server.create(RAYS.name, "red", body)
            await one.until(lambda: charged(one, RAY) == THREE)


async def test_a_label_of_a_namespace_changes_the_policy_that_holds():
    async with full_world() as one:
        body = {
            "metadata": {"name": "p"},
            "spec": {"namespaceSelector": {"matchLabels": {"t": "x"}}, "podsOnly": True},
        }
        one.server.create(POLICIES.name, "", body)
        one.server.create(NAMESPACES.name, "", {"metadata": {"name": "red"}})
        async with settling(one):
            await one.synced()
            one.server.create(DEPLOYMENTS.name, "red", deployment("web"))
            await one.until(lambda: charged(one) == TWO)
            one.server.update(NAMESPACES.name, "", "red", metadata={"labels": {"t": "x"}})
            await one.until(lambda: charged(one) == {})


async def test_what_nobody_was_asked_about_is_told_apart_from_drift():
    async with full_world() as one:
        policy(one, mode="off")
        async with settling(one):
            await one.synced()
            one.server.create(DEPLOYMENTS.name, "red", deployment("web"))
            await one.until(lambda: charged(one) == TWO)
            one.server.create(DEPLOYMENTS.name, "blue", deployment("web"))
            await one.until(lambda: one.root(WEB, f"{CLUSTER}/blue") is not None)
            assert one.drift == {UNENFORCED: 1, "unreserved": 1}
