"""Workloads are charged by the policies of their namespaces, which may change."""

import asyncio

from support.fakes.full_cluster import DEPLOYMENTS, deployment, template, workload
from support.harness.settlement import CLUSTER, full_world, settling

from ledger.kube.api.api_resources import NAMESPACES, POLICIES, Resource
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


async def test_workloads_are_charged_nothing_while_only_pods_count():
    async with full_world() as one, settling(one):
        await one.synced()
        one.server.create(DEPLOYMENTS.name, "red", deployment("web"))
        await one.until(lambda: charged(one) == TWO)
        policy(one, podsOnly=True)
        await one.until(lambda: charged(one) == {})
        one.server.delete(POLICIES.name, "", "p")
        await one.until(lambda: charged(one) == TWO)


async def test_workloads_are_charged_only_once_policies_are_listed():
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


async def test_workloads_are_charged_nothing_when_pods_wait():
    async with full_world() as one, settling(one):
        await one.synced()
        one.server.create(DEPLOYMENTS.name, "red", deployment("web"))
        await one.until(lambda: charged(one) == TWO)
        policy(one, onExceeded="pending")
        await one.until(lambda: charged(one) == {})


async def test_surge_is_charged_when_the_policy_reserves_it():
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


async def test_autoscalers_maximum_is_charged_when_the_policy_requires_it():
    async with full_world() as one:
        one.cluster.kinds[RAYS.name] = RAYS
        policy(one, elastic="max")
        async with settling(one):
            await one.synced()
            group = {"replicas": 1, "maxReplicas": 3, "template": template()}
            body = workload(RAYS, "r", enableInTreeAutoscaling=True, workerGroupSpecs=[group])
            one.server.create(RAYS.name, "red", body)
            await one.until(lambda: charged(one, RAY) == THREE)


async def test_policy_changes_when_a_namespace_label_changes():
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


async def test_unenforced_objects_are_counted_apart_from_drift():
    async with full_world() as one:
        policy(one, mode="off")
        async with settling(one):
            await one.synced()
            one.server.create(DEPLOYMENTS.name, "red", deployment("web"))
            await one.until(lambda: charged(one) == TWO)
            one.server.create(DEPLOYMENTS.name, "blue", deployment("web"))
            await one.until(lambda: one.root(WEB, f"{CLUSTER}/blue") is not None)
            assert one.drift == {UNENFORCED: 1, "unreserved": 1}
