"""Resource claims of the simulated clusters: cards of one driver that claims share by memory."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from support.oracles import resource_claim_oracle
from support.oracles.resource_claim_oracle import CLAIM_OF, DeviceSuppliers

from ledger.kube.api.api_resources import CLAIMS, PODS
from ledger.kube.api.objects import ObjectMeta, OwnerReference, Pod, Workload
from simulation.model.operations import SharedCard

Manifest = dict[str, Any]
Amounts = dict[str, int]

CLASS: Final = "shared"
KEYS: Final = f"{CLAIMS.name}/"
"""How the keys of claims begin."""

GENERATED: Final = "t"
"""The name that a pod gives its claim of a template."""

_DRIVER: Final = "hami-core-gpu.project-hami.io"
_CORES: Final = "5"


def class_spec() -> Manifest:
    """Return the spec of the class of all shared cards."""
    return {"selectors": [{"cel": {"expression": f"device.driver == '{_DRIVER}'"}}]}


def slice_spec(node: str, cards: Iterable[SharedCard], generation: int) -> Manifest:
    """Return the spec of the slice of a node, which is a pool of its own."""
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {"uuid": {"string": f"GPU-{node}-{number}"}},
            "allowMultipleAllocations": True,
            "capacity": {"memory": _steps(card.memory, card.step), "cores": _steps(100, 1, "")},
        }
        for number, card in enumerate(cards)
    ]
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": devices}


def claim_spec(memory: int, count: int = 1) -> Manifest:
    """Return the spec of a claim for so many MiB of each of some cards."""
    asked = {"memory": f"{memory}Mi", "cores": _CORES}
    exactly = {"deviceClassName": CLASS, "count": count, "capacity": {"requests": asked}}
    return {"devices": {"requests": [{"name": "cards", "exactly": exactly}]}}


def uses(template: str, claims: Iterable[str] = ()) -> list[Manifest]:
    """Return the claims in the spec of a pod: of a template unless it is empty, and by name."""
    generated = [{"name": GENERATED, "resourceClaimTemplateName": template}] if template else []
    return generated + [{"name": name, "resourceClaimName": name} for name in claims]


def claim_of(namespace: str, name: str, uid: str, spec: Manifest, app: str = "") -> Workload:
    """Return a claim of a user."""
    labels = {"app": app} if app else None
    meta = ObjectMeta(name=name, namespace=namespace, uid=uid, labels=labels)
    return Workload(CLAIMS.api_version, CLAIMS.kind, meta, spec, {})


def generated_claim(pod: Pod, uid: str, spec: Manifest) -> Workload:
    """Return a claim as the controller makes it for a pod."""
    meta = pod.metadata
    owner = OwnerReference(
        PODS.kind, meta.name, meta.uid, controller=True, api_version=PODS.api_version
    )
    claim = claim_of(meta.namespace, f"{meta.name}-{uid}", uid, spec)
    made = msgspec.structs.replace(
        claim.metadata, owner_references=[owner], annotations={CLAIM_OF: GENERATED}
    )
    return msgspec.structs.replace(claim, metadata=made)


def allocation(spec: Manifest, supply: tuple[Manifest, ...], pick: int) -> Manifest | None:
    """Return one of the allocations that a scheduler might choose, None if nothing fits."""
    exactly = spec["devices"]["requests"][0]["exactly"]
    fitting = resource_claim_oracle.fitting(exactly, _suppliers(supply))
    if not fitting:
        return None
    device = fitting[pick % len(fitting)][0]
    taken = resource_claim_oracle.taken(device, exactly["capacity"]["requests"]) or {}
    result = {
        "request": "cards",
        "driver": device.driver,
        "pool": device.pool,
        "device": device.content["name"],
        "consumedCapacity": {name: str(int(amount)) for name, amount in taken.items()},
    }
    results = [{**result, "shareID": f"share-{pick}-{each}"} for each in range(exactly["count"])]
    return {"devices": {"results": results}}


def bound(spec: Manifest, supply: tuple[Manifest, ...]) -> Amounts:
    """Return the most that a claim could consume."""
    return dict(_bound(msgspec.json.encode(spec), msgspec.json.encode(supply)))


def allocated(claim: Workload) -> Amounts | None:
    """Return the allocated amounts of a claim, None without an allocation."""
    if not (claim.status or {}).get("allocation"):
        return None
    total: Amounts = {}
    for result in (claim.status or {})["allocation"]["devices"]["results"]:
        consumed = {
            name: resource_claim_oracle.quantity(text)
            for name, text in result["consumedCapacity"].items()
        }
        part = {
            resource_claim_oracle.CARDS: 1,
            resource_claim_oracle.MEMORY: int(consumed["memory"]) // resource_claim_oracle.MEBIBYTE,
            resource_claim_oracle.CORES: int(consumed["cores"]),
        }
        total = {name: total.get(name, 0) + amount for name, amount in part.items()}
    return total


@lru_cache(maxsize=4_096)
def _bound(spec: bytes, supply: bytes) -> Mapping[str, int]:
    slices = tuple(msgspec.json.decode(supply))
    return resource_claim_oracle.bound_of(msgspec.json.decode(spec), _suppliers(slices)) or {}


def _suppliers(supply: tuple[Manifest, ...]) -> DeviceSuppliers:
    classes = [{"metadata": {"name": CLASS}, "spec": class_spec()}]
    return DeviceSuppliers(supply, classes, frozenset((_DRIVER,)), lambda *_: True)


def _steps(most: int, step: int, unit: str = "Mi") -> Manifest:
    valid = {"min": f"{step}{unit}", "step": f"{step}{unit}"}
    policy = {"default": f"{step}{unit}", "validRange": valid}
    return {"value": f"{most}{unit}", "requestPolicy": policy}
