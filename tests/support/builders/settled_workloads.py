"""Settled workloads: workloads and pods of a settled cluster, and their charges in the ledger."""

from support.fakes.apiserver import pod_body
from support.fakes.full_cluster import (
    DEPLOYMENTS,
    REPLICASETS,
    deployment,
    reference,
    template,
    workload,
)
from support.harness.settlement import (
    CLUSTER,
    World,
)

from ledger.core.model.commands import Reserve
from ledger.log.ledger_port import Accepted

WEB = "deployments.apps/web"


ONE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}


TWO = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 2000}


def create(world: World, resource, body, uid: str = ""):
    return world.server.create(resource.name, "red", body, uid)


def change(world: World, resource, name: str, *, generation: int = 0, **parts) -> None:
    if generation:
        parts["metadata"] = parts.get("metadata", {}) | {"generation": generation}
    world.server.update(resource.name, "red", name, **parts)


def pod(world: World, name: str, owner=None, uid: str = ""):
    body = pod_body(name, gpucores=0)
    if owner is not None:
        body["metadata"]["ownerReferences"] = [reference(owner)]
    return world.server.create("pods", "red", body, uid)


def web_with_pods(world: World, pods: int = 2):
    """Create a Deployment with its ReplicaSet and pods; return the ReplicaSet."""
    web = create(world, DEPLOYMENTS, deployment("web", pods), "web-uid")
    owned = workload(REPLICASETS, "web-1", web, replicas=pods, template=template())
    made = create(world, REPLICASETS, owned, "rs-uid")
    for number in range(pods):
        pod(world, f"web-1-{number}", made)
    return made


def committed(world: World, key: str):
    entry = world.root(key)
    return entry.committed if entry is not None and not entry.holds else None


def charged(world: World, key: str) -> dict:
    stored = committed(world, key)
    return stored.demand if stored is not None else {}


async def reserve(world: World, key: str, uid: str, demand=TWO, base: int = 0, **fields) -> None:
    command = Reserve(f"{CLUSTER}/red", key, uid, demand, base, **fields)
    assert isinstance(await world.writer.submit(command), Accepted)
