"""Devices of Dynamic Resource Allocation: slices, classes, claims, and worlds of them."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.resource_claims.claim_world import ClaimWorld
from ledger.kube.resource_claims.device_classes import ClassMapping, DriverMapping, class_mapping
from ledger.kube.resource_claims.device_supply import DeviceSupply
from ledger.kube.resource_claims.dra_objects import (
    Capacity,
    ClaimSpec,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
    SliceDevice,
)
from ledger.kube.resource_claims.slice_pools import SupplyDevice

DRIVER = "gpu.example.com"
H100 = "NVIDIA H100 80GB"
L40S = "NVIDIA L40S"
CARD = "nvidia.com/gpu"
MEMORY = "nvidia.com/gpumem"
CORES = "nvidia.com/gpucores"
GIB = 1024
"""MiB of one GiB."""

STEPS = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
CORE_STEPS = {"default": "10", "validRange": {"min": "1", "step": "1"}}


def mapping(**changes: Any) -> ClassMapping:
    """Return the built-in mapping with `DRIVER` as another driver of cards by NVIDIA."""
    built_in = class_mapping()
    own = DriverMapping(driver=DRIVER, vendor="nvidia")
    return msgspec.structs.replace(built_in, drivers=(*built_in.drivers, own), **changes)


def device(
    name: str,
    capacity: Mapping[str, Any],
    *,
    shared: bool = False,
    **strings: Any,
) -> SliceDevice:
    """Return a device with capacities as in JSON, and attributes of strings."""
    attributes = {key: {"string": value} for key, value in strings.items()}
    body = {"name": name, "capacity": capacity, "attributes": attributes}
    return msgspec.convert(body | {"allowMultipleAllocations": shared}, SliceDevice)


def shared_card(name: str, memory: str = "80Gi", product: str = H100) -> SliceDevice:
    """Return a card that several claims share in steps of 1 GiB and 1 percent."""
    capacity = {
        "memory": {"value": memory, "requestPolicy": STEPS},
        "cores": {"value": "100", "requestPolicy": CORE_STEPS},
    }
    return device(name, capacity, shared=True, productName=product, uuid=f"GPU-{name}")


def whole_card(name: str, memory: str = "48Gi", product: str = L40S) -> SliceDevice:
    """Return a card that one claim has alone."""
    return device(name, {"memory": {"value": memory}}, productName=product, uuid=f"GPU-{name}")


def resource_slice(
    *devices: SliceDevice,
    name: str = "",
    node: str = "n1",
    pool: str = "",
    generation: int = 1,
    slices: int = 1,
    driver: str = DRIVER,
    version: str = "",
) -> ResourceSlice:
    """Return a slice of a node's pool; the pool and the slice have the node's name by default."""
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": pool or node, "generation": generation, "resourceSliceCount": slices},
    }
    metadata = {"name": name or pool or node, "uid": version, "resourceVersion": version}
    made = msgspec.convert({"metadata": metadata, "spec": spec}, ResourceSlice)
    return msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, devices=list(devices))
    )


def counted_devices(supply: DeviceSupply, driver: str = DRIVER) -> list[SupplyDevice]:
    """Return the devices of a driver's complete pools, sorted by pool and name."""
    pools = supply._pools.get(driver, {}).values()
    slices = (stored for pool in pools for stored in pool.counted.values())
    devices = (device for stored in slices for device in stored.devices)
    return sorted(devices, key=lambda device: (device.pool, device.name))


def device_class(name: str, *expressions: str, extended: str = "") -> DeviceClass:
    """Return a class with selectors in CEL."""
    selectors = [{"cel": {"expression": text}} for text in expressions]
    spec = {"selectors": selectors, "extendedResourceName": extended}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)


CLASSES = (
    device_class("gpu", f"device.driver == '{DRIVER}'"),
    device_class("shared", f"device.driver == '{DRIVER}' && device.allowMultipleAllocations"),
    device_class(
        "h100",
        f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].productName == '{H100}'",
    ),
)


def world(
    *slices: ResourceSlice,
    classes: Iterable[DeviceClass] = CLASSES,
    rules: DemandRules | None = None,
    classes_mapping: ClassMapping | None = None,
    **limits: int,
) -> ClaimWorld:
    """Return the world of these slices and classes."""
    mapped = mapping() if classes_mapping is None else classes_mapping
    supply = DeviceSupply(mapped, **limits)
    supply.relist(slices)
    return ClaimWorld(
        supply=supply,
        classes={each.metadata.name: each for each in classes},
        mapping=mapped,
        rules=DemandRules() if rules is None else rules,
        cluster="c",
    )


def asking(name: str = "gpu", *, count: int = 1, **fields: Any) -> dict[str, Any]:
    """Return one way to satisfy a request: `memory` and `cores` are requested capacities."""
    requests = {key: fields.pop(key) for key in ("memory", "cores") if key in fields}
    requests |= fields.pop("requests", {})
    body: dict[str, Any] = {"deviceClassName": name, "count": count}
    return body | {"capacity": {"requests": requests}} | fields


def claim_spec(*requests: dict[str, Any] | list[dict[str, Any]]) -> ClaimSpec:
    """Return the spec of a claim with a request for each argument: one form, or alternatives."""
    made: list[dict[str, Any]] = []
    for number, request in enumerate(requests):
        if isinstance(request, list):
            forms = [form | {"name": f"f{place}"} for place, form in enumerate(request)]
            made.append({"name": f"r{number}", "firstAvailable": forms})
        else:
            made.append({"name": f"r{number}", "exactly": request})
    return msgspec.convert({"devices": {"requests": made}}, ClaimSpec)


def allocated_claim(spec: ClaimSpec, *results: dict[str, Any], name: str = "a") -> ResourceClaim:
    """Return an allocated claim; results without a driver are devices of `DRIVER`."""
    complete = [{"driver": DRIVER, "request": "r0", "pool": "n1"} | each for each in results]
    status = {"allocation": {"devices": {"results": complete}}}
    made = msgspec.convert({"metadata": {"name": name}, "status": status}, ResourceClaim)
    return msgspec.structs.replace(made, spec=spec)


def capacity(body: Mapping[str, Any]) -> Capacity:
    """Return a capacity of a device from JSON."""
    return msgspec.convert(body, Capacity)
