"""ResourceSlices and DeviceClasses, as the drivers of two nodes would publish them.

Each node has two shared cards of HAMi's driver, one whole card of NVIDIA's, and a network device.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.e2e.harness.cluster import Cluster, Manifest

API: Final = "/apis/resource.k8s.io/v1"
SHARED_DRIVER: Final = "hami-core-gpu.project-hami.io"
WHOLE_DRIVER: Final = "gpu.nvidia.com"
NET_DRIVER: Final = "dra.net"

H100_NODE: Final = "h100-node"
A100_NODE: Final = "a100-node"
SHARED: Final = "shared-gpu"
H100: Final = "shared-h100"
WHOLE: Final = "whole-gpu"
NET: Final = "net"
WHOLE_MIB: Final = 46_068

SMALL: Final = "7500Mi"
SMALL_BOUND: Final = 10_240
"""MiB that a claim for `SMALL` could consume: an A100 gives memory in steps of 5 GiB."""
SMALL_CONSUMED: Final = 8_192
"""MiB that it consumes of an H100, which gives memory in steps of 1 GiB."""


def shared_card(name: str, product: str, memory: str, step: str, uuid: str) -> Manifest:
    """Return a card that claims share by memory and cores."""
    return {
        "name": name,
        "attributes": {"productName": {"string": product}, "uuid": {"string": uuid}},
        "allowMultipleAllocations": True,
        "capacity": {
            "cores": _capacity("100", "10", {"min": "1", "step": "1"}),
            "memory": _capacity(memory, step, {"min": step, "step": step}),
        },
    }


def whole_card(name: str, uuid: str) -> Manifest:
    """Return a card that one claim has alone."""
    attributes = {"productName": {"string": "NVIDIA L40S"}, "uuid": {"string": uuid}}
    memory = {"memory": {"value": f"{WHOLE_MIB}Mi"}}
    return {"name": name, "attributes": attributes, "capacity": memory}


def slice_of(
    node: str, driver: str, devices: list[Manifest], *, generation: int = 1, slices: int = 1
) -> Manifest:
    """Return the slice of a node's pool of one driver."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}-{generation}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": slices},
            "devices": devices,
        },
    }


def shared_slice(node: str, generation: int = 1) -> Manifest:
    """Return the shared cards of a node: the A100s give memory in larger steps."""
    product, memory, step = {
        H100_NODE: ("NVIDIA H100 80GB HBM3", "80Gi", "1Gi"),
        A100_NODE: ("NVIDIA A100-SXM4-40GB", "40Gi", "5Gi"),
    }[node]
    cards = [
        shared_card(f"gpu-{index}", product, memory, step, f"GPU-{node}-{index}")
        for index in range(2)
    ]
    return slice_of(node, SHARED_DRIVER, cards, generation=generation)


def slices() -> list[Manifest]:
    """Return all slices of both nodes."""
    made = []
    for node in (H100_NODE, A100_NODE):
        made.append(shared_slice(node))
        made.append(slice_of(node, WHOLE_DRIVER, [whole_card("whole", f"GPU-{node}-whole")]))
        made.append(slice_of(node, NET_DRIVER, [{"name": "eth1"}, {"name": "eth2"}]))
    return made


def device_class(name: str, *expressions: str, **spec: Any) -> Manifest:
    """Return a class of the devices that meet all expressions."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def classes() -> list[Manifest]:
    """Return the classes of the drivers; the class of whole cards serves the extended resource."""
    shared = f"device.driver == '{SHARED_DRIVER}'"
    product = f"device.attributes['{SHARED_DRIVER}'].productName == 'NVIDIA H100 80GB HBM3'"
    return [
        device_class(SHARED, shared),
        device_class(H100, f"{shared} && {product}"),
        device_class(
            WHOLE, f"device.driver == '{WHOLE_DRIVER}'", extendedResourceName="nvidia.com/gpu"
        ),
        device_class(NET, f"device.driver == '{NET_DRIVER}'"),
    ]


async def publish(cluster: Cluster) -> None:
    """Write all slices and classes."""
    for manifest in slices():
        await cluster.must("POST", f"{API}/resourceslices", manifest)
    for manifest in classes():
        await cluster.must("POST", f"{API}/deviceclasses", manifest)


@asynccontextmanager
async def withdrawn(cluster: Cluster, *pools: tuple[str, str]) -> AsyncIterator[None]:
    """Delete the slices of these nodes and drivers for the block."""
    place = f"{API}/resourceslices"
    gone = [
        each
        for each in await cluster.items(place)
        if (each["spec"]["nodeName"], each["spec"]["driver"]) in pools
    ]
    for each in gone:
        await cluster.must("DELETE", f"{place}/{each['metadata']['name']}")
    try:
        yield
    finally:
        for each in gone:
            named = {"name": each["metadata"]["name"]}
            kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
            await cluster.must("POST", place, {**kind, "metadata": named, "spec": each["spec"]})


def _capacity(value: str, default: str, valid: dict[str, str]) -> Manifest:
    return {"value": value, "requestPolicy": {"default": default, "validRange": valid}}
