"""Nodes that announce cards as HAMi's device plugin does; kwok plays their kubelets."""

import asyncio
import json
from typing import Final, Literal, NamedTuple

from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.polling import eventually

NODES: Final = "/api/v1/nodes"
REGISTERED: Final = "hami.io/node-nvidia-register"
KEEPER: Final = "gpuledger.io/keeper"
LOCK: Final = "hami.io/mutex.lock"

OWN: Final = "gpuledger"
HAMI: Final = "hami"

Form = Literal["json", "colons"]
"""How cards are written: as today's plugin does, or as those before v2.8 did."""

READY_SECONDS: Final = 60.0
REQUESTS_MAX: Final = 16
NUMA_NODES: Final = 2


class Shape(NamedTuple):
    """The capacity of every card of a node: MiB, percent, most containers, and its model."""

    cards: int = 8
    memory: int = 24_576
    cores: int = 100
    slots: int = 10
    model: str = "NVIDIA A10"


A10: Final = Shape()


def node(
    name: str, shape: Shape = A10, *, keeper: str = OWN, form: Form = "json", **also: str
) -> Manifest:
    """Return a node with cards `GPU-<name>-<index>`, half of them on each NUMA node.

    `keeper` is who hands the cards out; `also` are more labels.
    """
    write = _json if form == "json" else _colons
    annotations = {REGISTERED: write(name, shape)}
    if keeper == OWN:
        annotations[KEEPER] = OWN
    room = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    room["nvidia.com/gpu"] = str(shape.cards * shape.slots)
    labels = {"kubernetes.io/hostname": name, "type": "kwok", **also}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "status": {"capacity": room, "allocatable": room},
    }


def uuids(name: str, shape: Shape = A10) -> list[str]:
    """Return the names of a node's cards, in order of their index."""
    return [f"GPU-{name}-{index}" for index in range(shape.cards)]


async def make(cluster: Cluster, nodes: list[Manifest]) -> None:
    """Create nodes and wait until all of them are ready for pods."""
    at_once = asyncio.Semaphore(REQUESTS_MAX)

    async def create(manifest: Manifest) -> None:
        async with at_once:
            await cluster.must("POST", NODES, manifest)

    await asyncio.gather(*map(create, nodes))
    names = {manifest["metadata"]["name"] for manifest in nodes}
    await eventually(
        lambda: _not_ready(cluster, names),
        lambda waiting: not waiting,
        within=READY_SECONDS,
        what=f"{len(names)} nodes are ready",
    )


async def remove(cluster: Cluster, *names: str) -> None:
    """Delete nodes, as one does whose machines are gone."""
    for name in names:
        await cluster.must("DELETE", f"{NODES}/{name}")


def _json(name: str, shape: Shape) -> str:
    return json.dumps(
        [
            {
                "id": uuid,
                "index": index,
                "count": shape.slots,
                "devmem": shape.memory,
                "devcore": shape.cores,
                "type": shape.model,
                "numa": _numa(index, shape),
                "mode": "hami-core",
                "health": True,
            }
            for index, uuid in enumerate(uuids(name, shape))
        ]
    )


def _colons(name: str, shape: Shape) -> str:
    return "".join(
        f"{uuid},{shape.slots},{shape.memory},{shape.cores},{shape.model}"
        f",{_numa(index, shape)},true,{index},hami-core:"
        for index, uuid in enumerate(uuids(name, shape))
    )


def _numa(index: int, shape: Shape) -> int:
    return index * NUMA_NODES // shape.cards


async def _not_ready(cluster: Cluster, names: set[str]) -> set[str]:
    return names - {
        manifest["metadata"]["name"]
        for manifest in await cluster.items(NODES)
        if _is_ready(manifest) and not manifest["spec"].get("taints")
    }


def _is_ready(manifest: Manifest) -> bool:
    conditions = manifest.get("status", {}).get("conditions") or ()
    return "True" in [
        condition["status"] for condition in conditions if condition["type"] == "Ready"
    ]
