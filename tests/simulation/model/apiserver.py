"""An API server in memory: objects with compare-and-swap writes, and a history to watch.

The ledger is compared with it, so it is as plain as possible. `actors/admitted_writes.py` has the
requests with their admission, and `world/cluster_client.py` the view of a replica.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import msgspec

from ledger.kube.api.api_resources import CLAIMS, NAMESPACES, RESOURCE_SLICES, Resource
from ledger.kube.api.cluster_ports import Changed
from ledger.kube.api.objects import (
    ApiNode,
    ObjectMeta,
    Pod,
    ResourceQuota,
    ResourceQuotaSpec,
    ScopeRequirement,
    ScopeSelector,
    Workload,
)
from simulation.model import kinds

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
TERMINAL: Final = ("Succeeded", "Failed")

Name = tuple[str, str]
"""Namespace, empty where there is none, and name."""

T = TypeVar("T", ApiNode, Pod, ResourceQuota, Workload)


class Conflict(Exception):
    """The object is not at the version that the write builds on, or already exists."""


class Collection(Generic[T]):
    """Objects of one kind. `history` holds every change, in order."""

    def __init__(self, clock: "VersionCounter") -> None:
        self.objects: dict[Name, T] = {}
        self.history: list[Changed[T]] = []
        self._clock = clock

    def write(self, item: T, base: int) -> T:
        """Store an object at the version after all others; base 0 creates it. Raises Conflict."""
        name = item.metadata.namespace, item.metadata.name
        stored = self.objects.get(name)
        if (stored.metadata.version() if stored is not None else 0) != base:
            raise Conflict(f"{name} is not at version {base}")
        version = self._clock.next()
        meta = msgspec.structs.replace(item.metadata, resource_version=str(version))
        if stored is None:
            seconds = int(asyncio.get_running_loop().time())
            meta = msgspec.structs.replace(meta, creation_timestamp=at(seconds))
        written = msgspec.structs.replace(item, metadata=meta)
        self.objects[name] = written
        self._tell(Changed(version, written))
        return written

    def remove(self, name: Name, uid: str) -> T | None:
        """Remove an object if it is still this one."""
        stored = self.objects.get(name)
        if stored is None or stored.metadata.uid != uid:
            return None
        del self.objects[name]
        version = self._clock.next()
        meta = msgspec.structs.replace(stored.metadata, resource_version=str(version))
        gone = msgspec.structs.replace(stored, metadata=meta)
        self._tell(Changed(version, gone, deleted=True))
        return gone

    def _tell(self, change: Changed[T]) -> None:
        self.history.append(change)
        self._clock.wake()


class VersionCounter:
    """The resourceVersion that all kinds share, and the wake-up call for watchers."""

    def __init__(self) -> None:
        self.version = 1
        self._news = asyncio.Event()

    def next(self) -> int:
        """Return the next version."""
        self.version += 1
        return self.version

    def wake(self) -> None:
        """Wake the tasks that wait for a change."""
        self._news.set()
        self._news = asyncio.Event()

    async def news(self) -> None:
        """Wait for the next change."""
        await self._news.wait()


class SimulatedApiServer:
    """The objects of one cluster; `region` is the region in the settings of its services.

    `reviewed` holds the uids whose stored demand was admitted by the ledger's webhook: those must
    be charged at every moment. The others are charged when they are seen. `barred` holds those that
    were admitted although they name a controller that has not made them. `pending` holds the
    attempts `(uid, base)` that were charged, allowed, and may still be written. `lenient` are the
    namespaces whose policy ever was another than to enforce. `bindings` has the cards that were
    written by a Binding of the ledger's, `foreign` those that another writer wrote, by uid.
    `supplies` has all ResourceSlices after each change of one. `of_pods` holds the uids of resource
    claims that were admitted as part of their pod's charge, `apart` those of pods of which a claim
    was not.
    """

    def __init__(self, name: str, on_write: Callable[[str, str], None]) -> None:
        """`on_write` is called with namespace and key of every pod or root that is written."""
        self.name = name
        self.region = ""
        self.versions = VersionCounter()
        self.pods: Collection[Pod] = Collection(self.versions)
        self.quotas: Collection[ResourceQuota] = Collection(self.versions)
        self.nodes: Collection[ApiNode] = Collection(self.versions)
        self.others: dict[str, Collection[Workload]] = {
            resource: Collection(self.versions) for resource in kinds.RESOURCES
        }
        self.reviewed: set[str] = set()
        self.barred: set[str] = set()
        self.pending: Counter[tuple[str, int]] = Counter()
        self.lenient: set[str] = set()
        self.bindings: dict[str, list[str]] = {}
        self.foreign: dict[str, list[str]] = {}
        self.supplies: list[tuple[dict[str, Any], ...]] = []
        self.of_pods: set[str] = set()
        self.apart: set[str] = set()
        self._on_write = on_write
        self._made = 0

    def fresh_uid(self) -> str:
        """Return a uid that was never used, in no cluster."""
        self._made += 1
        return f"{self.name}-uid-{self._made}"

    def write(self, item: Pod | Workload, base: int, *, reviewed: bool | None = None) -> None:
        """Store a pod or a root. Raises Conflict.

        `reviewed` is whether its demand was admitted, None: as before.
        """
        meta = item.metadata
        key = f"pods/{meta.name}"
        if isinstance(item, Pod):
            self.pods.write(item, base)
        else:
            resource = kinds.resource_of(item)
            key = f"{resource.name}/{meta.name}"
            self.others[resource.name].write(self._generated(resource, item), base)
        if reviewed is not None:
            (self.reviewed.add if reviewed else self.reviewed.discard)(meta.uid)
        self._on_write(meta.namespace, key)

    def remove(self, item: Pod | Workload) -> None:
        """Remove a pod or a root if it is still this one."""
        meta = item.metadata
        name = meta.namespace, meta.name
        if isinstance(item, Pod):
            if self.pods.remove(name, meta.uid) is not None:
                self._on_write(meta.namespace, f"pods/{meta.name}")
            return
        resource = kinds.resource_of(item)
        if self.others[resource.name].remove(name, meta.uid) is not None:
            self._on_write(meta.namespace, f"{resource.name}/{meta.name}")

    def set_quota(self, namespace: str, name: str, hard: Mapping[str, str], priority: str) -> None:
        """Create or change a ResourceQuota."""
        stored = self.quotas.objects.get((namespace, name))
        meta = ObjectMeta(name=name, namespace=namespace, uid=self.fresh_uid())
        if stored is not None:
            meta = stored.metadata
        spec = ResourceQuotaSpec(hard={**hard})
        if priority:
            classes = ScopeSelector([ScopeRequirement("PriorityClass", "In", [priority])])
            spec = msgspec.structs.replace(spec, scope_selector=classes)
        self.quotas.write(ResourceQuota(metadata=meta, spec=spec), meta.version())

    def drop_quota(self, namespace: str, name: str) -> None:
        """Delete a ResourceQuota."""
        stored = self.quotas.objects.get((namespace, name))
        if stored is not None:
            self.quotas.remove((namespace, name), stored.metadata.uid)

    def apply(
        self, resource: Resource, name: str, spec: dict[str, Any], namespace: str = ""
    ) -> None:
        """Create or change an object without a review."""
        collection = self.others[resource.name]
        stored = collection.objects.get((namespace, name))
        meta = ObjectMeta(name=name, namespace=namespace, uid=self.fresh_uid())
        if stored is not None:
            meta = stored.metadata
        written = Workload(resource.api_version, resource.kind, meta, spec)
        collection.write(written, meta.version())

    def drop(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Delete an object without a review."""
        collection = self.others[resource.name]
        stored = collection.objects.get((namespace, name))
        if stored is not None:
            collection.remove((namespace, name), stored.metadata.uid)

    def set_slice(self, node: str, spec: dict[str, Any]) -> None:
        """Write the ResourceSlice of a node."""
        self.apply(RESOURCE_SLICES, node, spec)
        slices = self.others[RESOURCE_SLICES.name].objects
        self.supplies.append(tuple({"spec": slices[name].spec} for name in sorted(slices)))

    def claims(self) -> list[Workload]:
        """Return all resource claims, in order."""
        objects = self.others[CLAIMS.name].objects
        return [objects[name] for name in sorted(objects)]

    def label_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a namespace, or give it other labels."""
        collection = self.others[NAMESPACES.name]
        stored = collection.objects.get(("", name))
        meta = ObjectMeta(name=name, uid=self.fresh_uid())
        if stored is not None:
            meta = stored.metadata
        labelled = msgspec.structs.replace(meta, labels={**labels})
        collection.write(Workload("v1", NAMESPACES.kind, labelled), meta.version())

    def roots(self) -> list[Workload]:
        """Return everything that makes pods, in order."""
        return [
            collection.objects[name]
            for collection in (self.others[resource] for resource in kinds.ROOTS)
            for name in sorted(collection.objects)
        ]

    def pick(self, number: int) -> Pod | None:
        """Return one of the pods, None when there is none."""
        pods = self.pods.objects
        return pods[sorted(pods)[number % len(pods)]] if pods else None

    def pick_root(self, number: int) -> Workload | None:
        """Return one of the objects that make pods, None when there is none."""
        roots = self.roots()
        return roots[number % len(roots)] if roots else None

    def stored(self, item: Workload) -> Workload | None:
        """Return the stored object that makes pods, if it is the same one."""
        meta = item.metadata
        current = self.others[kinds.resource_of(item).name].objects.get((meta.namespace, meta.name))
        return current if current is not None and current.metadata.uid == meta.uid else None

    def _generated(self, resource: Resource, item: Workload) -> Workload:
        """Return a root with the generation that counts changes of its spec; claims have none."""
        if item.kind not in kinds.ROOT_KINDS:
            return item
        meta = item.metadata
        stored = self.others[resource.name].objects.get((meta.namespace, meta.name))
        generation = stored.metadata.generation if stored is not None else 0
        changed = stored is None or stored.spec != item.spec
        counted = msgspec.structs.replace(meta, generation=generation + changed)
        return msgspec.structs.replace(item, metadata=counted)


def counts(pod: Pod, seconds: float) -> bool:
    """Return whether a pod still counts at a virtual time: neither finished nor given up."""
    if pod.status.phase in TERMINAL:
        return False
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return True
    grace = timedelta(seconds=meta.deletion_grace_period_seconds or 0)
    return meta.deletion_timestamp + grace >= at(seconds)


def at(seconds: float) -> datetime:
    """Return the true wall-clock time at a virtual time."""
    return EPOCH + timedelta(seconds=seconds)
