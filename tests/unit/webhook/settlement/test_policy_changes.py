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


def policy(world, name: str = "p", **spec) -> None:
    body = {"metadata": {"name": name}, "spec": {"namespaces": ["red"]} | spec}
    world.server.create(POLICIES.name, "", body)


def charged(world, key: str = WEB) -> dict | None:
    entry = world.root(key)
    return entry.committed.demand if entry is not None and entry.committed is not None else None


async def test_workloads_are_charged_nothing_while_only_pods_count():
    async with full_world() as world, settling(world):
        await world.synced()
        world.server.create(DEPLOYMENTS.name, "red", deployment("web"))
        await world.until(lambda: charged(world) == TWO)
        policy(world, podsOnly=True)
        await world.until(lambda: charged(world) == {})
        world.server.delete(POLICIES.name, "", "p")
        await world.until(lambda: charged(world) == TWO)


async def test_workloads_are_charged_only_once_policies_are_listed():
    async with full_world() as world:
        known, honest = asyncio.Event(), world.cluster.watch_policies

        async def watch_policies():
            await known.wait()
            async for change in honest():
                yield change

        world.cluster.watch_policies = watch_policies
        policy(world, podsOnly=True)
        world.server.create(DEPLOYMENTS.name, "red", deployment("web"))
        async with settling(world):
            await world.until(lambda: CLUSTER in world.state.described)
            await asyncio.sleep(0.3)  # to give a list that comes too early its chance
            known.set()
            await world.synced()
            assert charged(world) is None
            assert world.drift == {}


async def test_workloads_are_charged_nothing_when_pods_wait():
    async with full_world() as world, settling(world):
        await world.synced()
        world.server.create(DEPLOYMENTS.name, "red", deployment("web"))
        await world.until(lambda: charged(world) == TWO)
        policy(world, onExceeded="pending")
        await world.until(lambda: charged(world) == {})


async def test_surge_is_charged_when_the_policy_reserves_it():
    async with full_world() as world:
        policy(world, surge="reserve")
        async with settling(world):
            await world.synced()
            body = deployment("web")
            body["metadata"]["generation"] = 2
            body["spec"]["strategy"] = {"rollingUpdate": {"maxSurge": 1}}
            world.server.create(DEPLOYMENTS.name, "red", body)
            await world.until(lambda: charged(world) == THREE)
            done = {"observedGeneration": 2, "updatedReplicas": 2, "replicas": 2}
            world.server.update(DEPLOYMENTS.name, "red", "web", status=done)
            await world.until(lambda: charged(world) == TWO)


async def test_autoscalers_maximum_is_charged_when_the_policy_requires_it():
    async with full_world() as world:
        world.cluster.kinds[RAYS.name] = RAYS
        policy(world, elastic="max")
        async with settling(world):
            await world.synced()
            group = {"replicas": 1, "maxReplicas": 3, "template": template()}
            body = workload(RAYS, "r", enableInTreeAutoscaling=True, workerGroupSpecs=[group])
            world.server.create(RAYS.name, "red", body)
            await world.until(lambda: charged(world, RAY) == THREE)


async def test_policy_changes_when_a_namespace_label_changes():
    async with full_world() as world:
        body = {
            "metadata": {"name": "p"},
            "spec": {"namespaceSelector": {"matchLabels": {"t": "x"}}, "podsOnly": True},
        }
        world.server.create(POLICIES.name, "", body)
        world.server.create(NAMESPACES.name, "", {"metadata": {"name": "red"}})
        async with settling(world):
            await world.synced()
            world.server.create(DEPLOYMENTS.name, "red", deployment("web"))
            await world.until(lambda: charged(world) == TWO)
            world.server.update(NAMESPACES.name, "", "red", metadata={"labels": {"t": "x"}})
            await world.until(lambda: charged(world) == {})


async def test_unenforced_objects_are_counted_apart_from_drift():
    async with full_world() as world:
        policy(world, mode="off")
        async with settling(world):
            await world.synced()
            world.server.create(DEPLOYMENTS.name, "red", deployment("web"))
            await world.until(lambda: charged(world) == TWO)
            world.server.create(DEPLOYMENTS.name, "blue", deployment("web"))
            await world.until(lambda: world.root(WEB, f"{CLUSTER}/blue") is not None)
            assert world.drift == {UNENFORCED: 1, "unreserved": 1}
