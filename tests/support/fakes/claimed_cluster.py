"""Claimed cluster: resource claims, their pods and their supply in a fake cluster."""

from datetime import UTC, datetime
from typing import Any

from support.fakes.apiserver import Object
from support.harness.settlement import CLUSTER, World

from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import Reserve
from ledger.core.model.state import Entry
from ledger.kube.api.api_resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
)
from ledger.log.ledger_port import Accepted

DRIVER = "hami-core-gpu.project-hami.io"
CLASS = "shared-gpu"
RED = f"{CLUSTER}/red"
CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
EXTENDED = "resource.kubernetes.io/extended-resource-claim"

BOUND: Amounts = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30, "nvidia.com/gpumem": 8192}
"""The bound of `claim_spec()`: 7500Mi, rounded up to whole GiB."""

GIVEN: Amounts = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 30, "nvidia.com/gpumem": 4096}
"""The allocation of `allocate` without arguments."""


def serve_claims(world: World, *, supply: bool = True) -> None:
    """Have the cluster serve resource.k8s.io, with one class and one node of two shared cards."""
    for resource in (CLAIMS, CLAIM_TEMPLATES, DEVICE_CLASSES, RESOURCE_SLICES):
        world.cluster.kinds[resource.name] = resource
    if supply:
        world.server.create(DEVICE_CLASSES.name, "", _class())
        world.server.create(RESOURCE_SLICES.name, "", _slice())


def claim_spec(memory: str = "7500Mi", cores: str = "30") -> Object:
    """Return the spec of a claim of one share of a card."""
    exactly = {
        "deviceClassName": CLASS,
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {"memory": memory, "cores": cores}},
    }
    return {"devices": {"requests": [{"name": "g", "exactly": exactly}]}}


def make_template(world: World, name: str = "small") -> Object:
    body = {"metadata": {"name": name}, "spec": {"spec": claim_spec()}}
    return world.server.create(CLAIM_TEMPLATES.name, "red", body)


def make_claim(
    world: World,
    name: str,
    pod: Object | None = None,
    *,
    uid: str = "",
    annotation: tuple[str, str] = (CLAIM_NAME, "g"),
    memory: str = "7500Mi",
) -> Object:
    """Write a claim; with a pod it is controlled by that pod, as a generated one is."""
    meta: Object = {"name": name}
    if pod is not None:
        owner = {"apiVersion": "v1", "kind": "Pod", "controller": True}
        of_pod = {key: pod["metadata"][key] for key in ("name", "uid")}
        meta |= {
            "ownerReferences": [owner | of_pod],
            "annotations": dict([annotation]),
        }
    return world.server.create(
        CLAIMS.name, "red", {"metadata": meta, "spec": claim_spec(memory)}, uid
    )


def make_pod(
    world: World,
    name: str,
    *,
    uid: str = "",
    limits: Any = None,
    owners: tuple[Object, ...] = (),
    **spec: Any,
) -> Object:
    """Write a pod whose claim `g` comes from the template `small`."""
    wanted = {"name": "g", "resourceClaimTemplateName": "small"}
    body = {
        "metadata": {"name": name, "ownerReferences": list(owners)},
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": limits or {}}}],
            "resourceClaims": [wanted],
            **spec,
        },
        "status": {"phase": "Pending"},
    }
    return world.server.create("pods", "red", body, uid)


def show_claim(world: World, pod: str, claim: str, wanted: str = "g") -> None:
    """Name a claim in the status of a pod, as the controller does."""
    made = [{"name": wanted, "resourceClaimName": claim}]
    world.server.update("pods", "red", pod, status={"resourceClaimStatuses": made})


def generated(world: World, pod: Object, memory: str = "7500Mi", uid: str = "") -> str:
    """Write the claim of a pod as the controller does; return its name."""
    name = f"{pod['metadata']['name']}-g-x"
    make_claim(world, name, pod, memory=memory, uid=uid)
    show_claim(world, pod["metadata"]["name"], name)
    return name


def allocate(
    world: World, claim: str, *, memory: str = "4Gi", cores: str = "30", device: str = "gpu-0"
) -> None:
    """Write an allocation, as kube-scheduler does."""
    result = {
        "request": "g",
        "driver": DRIVER,
        "pool": "n1",
        "device": device,
        "shareID": f"share-of-{claim}",
        "consumedCapacity": {"memory": memory, "cores": cores},
    }
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    world.server.update(CLAIMS.name, "red", claim, status=status)


def deallocate(world: World, claim: str) -> None:
    """Clear an allocation, as the controller does."""
    world.server.update(CLAIMS.name, "red", claim, status={"allocation": None, "reservedFor": None})


async def reserve_key(world: World, key: str, uid: str, demand: Amounts | None = None) -> None:
    """Reserve for an object, as its review does."""
    command = Reserve(RED, key, uid, BOUND if demand is None else demand)
    assert isinstance(await world.writer.submit(command), Accepted)


async def reviewed_pod(world: World, name: str = "p") -> Object:
    """Write a pod with a claim, for which its review has reserved the bound."""
    uid = f"uid-of-{name}"
    await reserve_key(world, f"pods/{name}", uid)
    return make_pod(world, name, uid=uid)


def claim_entry(world: World, name: str) -> Entry | None:
    """Return the ledger's entry at the key of a claim."""
    return world.root(f"{CLAIMS.name}/{name}")


def charge_of(entry: Entry | None) -> Amounts:
    """Return the committed charge; empty while a hold is open."""
    settled = entry is not None and entry.committed is not None and not entry.holds
    return entry.charge if entry is not None and settled else {}


def pod_charge(world: World, name: str) -> Amounts:
    """Return the committed charge of a pod; empty while a hold is open."""
    return charge_of(world.entry(name))


def devices_of(entry: Entry | None) -> list[tuple[str, str]]:
    """Return the claim and the name of each device."""
    stored = entry.committed if entry is not None else None
    return [(device.claim, device.device) for device in stored.devices] if stored else []


def days_ago(world: World, days: float) -> str:
    """Return a time before that of the world, as in `metadata.creationTimestamp`."""
    return datetime.fromtimestamp(world.now / 1e6 - days * 86_400, UTC).isoformat()


def _class() -> Object:
    expression = f"device.driver == '{DRIVER}'"
    return {
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _slice() -> Object:
    memory = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    cores = {"default": "10", "validRange": {"min": "1", "step": "1"}}
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "productName": {"string": "NVIDIA H100 80GB"},
                "uuid": {"string": f"GPU-n1-{number}"},
            },
            "capacity": {
                "memory": {"value": "80Gi", "requestPolicy": memory},
                "cores": {"value": "100", "requestPolicy": cores},
            },
            "allowMultipleAllocations": True,
        }
        for number in range(2)
    ]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": "n1-slice"},
        "spec": {"driver": DRIVER, "pool": pool, "nodeName": "n1", "devices": devices},
    }
