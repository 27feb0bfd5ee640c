"""Workloads and pods of a settled world, and their charges in the ledger."""

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
from ledger.log.ledger import Accepted

WEB = "deployments.apps/web"


ONE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}


TWO = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 2000}


def create(one: World, resource, body, uid: str = ""):
    return one.server.create(resource.name, "red", body, uid)


def change(one: World, resource, name: str, *, generation: int = 0, **parts) -> None:
    if generation:
        parts["metadata"] = parts.get("metadata", {}) | {"generation": generation}
    one.server.update(resource.name, "red", name, **parts)


def pod(one: World, name: str, owner=None, uid: str = ""):
    body = pod_body(name, gpucores=0)
    if owner is not None:
        body["metadata"]["ownerReferences"] = [reference(owner)]
    return one.server.create("pods", "red", body, uid)


def web_with_pods(one: World, pods: int = 2):
    """Create a Deployment with its ReplicaSet and pods; return the ReplicaSet."""
    web = create(one, DEPLOYMENTS, deployment("web", pods), "web-uid")
    owned = workload(REPLICASETS, "web-1", web, replicas=pods, template=template())
    made = create(one, REPLICASETS, owned, "rs-uid")
    for number in range(pods):
        pod(one, f"web-1-{number}", made)
    return made


def committed(one: World, key: str):
    entry = one.root(key)
    return entry.committed if entry is not None and not entry.holds else None


def charged(one: World, key: str) -> dict:
    stored = committed(one, key)
    return stored.demand if stored is not None else {}


async def reserve(one: World, key: str, uid: str, demand=TWO, base: int = 0, **fields) -> None:
    command = Reserve(f"{CLUSTER}/red", key, uid, demand, base, **fields)
    assert isinstance(await one.writer.submit(command), Accepted)
