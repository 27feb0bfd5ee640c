"""Objects that an installation leaves behind: every kind of the API server, before and after.

Discovery names the kinds, so that also kinds which no test names are compared.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.e2e.harness.cluster import Cluster, Manifest

PASSING: Final = frozenset({"events", "leases", "endpointslices", "endpoints", "podmetrics"})
"""Resources that Kubernetes itself makes and removes all the time."""

OURS: Final = "gpuledger.io/"


class ObjectId(NamedTuple):
    """An object, so that the same name made again is another one."""

    resource: str
    namespace: str
    name: str
    uid: str


Inventory = Mapping[ObjectId, Manifest]


async def inventory(cluster: Cluster) -> Inventory:
    """List every object of every resource that can be listed."""
    resources = await _resources(cluster)
    listed = await asyncio.gather(*(cluster.items(path) for path in resources.values()))
    return {
        _id(resource, manifest): manifest
        for resource, items in zip(resources, listed, strict=True)
        for manifest in items
    }


def leftovers(before: Inventory, after: Inventory) -> list[ObjectId]:
    """Return the objects of `after` that are not in `before`."""
    return sorted(set(after) - set(before))


def marked(inventory: Inventory) -> dict[ObjectId, list[str]]:
    """Return labels, annotations, gates and finalizers of ours, by the object that has them."""
    marks_of = {each: _marks(manifest) for each, manifest in inventory.items()}
    return {each: marks for each, marks in marks_of.items() if marks}


async def _resources(cluster: Cluster) -> dict[str, str]:
    """Return the paths of all resources that can be listed, by name with group."""
    groups = await cluster.must("GET", "/apis")
    versions = {"": "/api/v1"} | {
        group["name"]: f"/apis/{group['preferredVersion']['groupVersion']}"
        for group in groups["groups"]
    }
    lists = await asyncio.gather(*(cluster.must("GET", path) for path in versions.values()))
    return {
        f"{resource['name']}.{group}".rstrip("."): f"{path}/{resource['name']}"
        for (group, path), served in zip(versions.items(), lists, strict=True)
        for resource in served["resources"]
        if "list" in resource["verbs"] and resource["name"] not in PASSING
    }


def _id(resource: str, manifest: Manifest) -> ObjectId:
    metadata = manifest["metadata"]
    uid = metadata.get("uid", "")
    return ObjectId(resource, metadata.get("namespace", ""), metadata["name"], uid)


def _marks(manifest: Manifest) -> list[str]:
    metadata = manifest["metadata"]
    names = [
        *(metadata.get("labels") or ()),
        *(metadata.get("annotations") or ()),
        *(metadata.get("finalizers") or ()),
        *(gate["name"] for gate in (manifest.get("spec") or {}).get("schedulingGates") or ()),
    ]
    return sorted(name for name in names if OURS in name)
