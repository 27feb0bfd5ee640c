"""Cluster client: one replica reads its cluster, late, twice, after a gap, or not at all.

Changes still come in order and at least once, unless they are lost with the history, as in a real
watch. Lists are linearizable, but slow, or they fail.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, TypeVar

import msgspec

from ledger.kube.api.api_resources import NAMESPACES, PODS, POLICIES, Resource
from ledger.kube.api.cluster_errors import ClusterUnavailable, NotFound, VersionConflict
from ledger.kube.api.cluster_ports import Change, Changed, Interrupted, Listed, PodEvent, Reached
from ledger.kube.api.objects import Pod, Quantities, ResourceQuota, ResourceQuotaStatus, Workload
from simulation.model import apiserver, kinds
from simulation.model.apiserver import Collection, SimulatedApiServer, T

HOP_SECONDS_MAX: Final = 0.01
REPEATED_MAX: Final = 3
AGAIN_SECONDS: Final = 0.5

K = TypeVar("K")


class ClusterClient:
    """Implements the ports of `ledger.kube.api.cluster_ports` over the model. The script turns the
    knobs."""

    def __init__(self, server: SimulatedApiServer, source: random.Random) -> None:
        self.trouble = 0.0
        self.list_seconds = 0.0
        self.lists_failing = 0.0
        self._server = server
        self._source = source
        self._stalled_until = 0.0
        self._expirations = 0

    @property
    def name(self) -> str:
        """The name of the cluster in the ledger."""
        return self._server.name

    @property
    def region(self) -> str:
        """The region in the settings of this cluster's services."""
        return self._server.region

    def stall(self, seconds: float, *, expired: bool) -> None:
        """Let the watches stand still; with `expired` their history is gone afterwards."""
        self._stalled_until = asyncio.get_running_loop().time() + seconds
        self._expirations += expired

    def calm(self) -> None:
        """Let everything work from now on."""
        self.trouble = self.list_seconds = self.lists_failing = self._stalled_until = 0.0

    async def kube_system_uid(self) -> str:
        """Return the cluster's identity. Raises Unavailable."""
        await self._answer()
        return f"kube-system of {self._server.name}"

    async def served(self) -> tuple[Resource, ...]:
        """Return the served resources. Raises Unavailable."""
        await self._answer()
        return tuple(kinds.RESOURCES.values())

    async def list_pods(self, namespace: str) -> Listed[Pod]:
        """List a namespace as of some moment during the call. Raises Unavailable."""
        return await self._list(self._server.pods, namespace)

    async def list_objects(self, resource: Resource, namespace: str = "") -> Listed[Workload]:
        """List a namespace as of some moment during the call. Raises Unavailable."""
        return await self._list(self._server.others[resource.name], namespace)

    async def get_object(self, resource: Resource, namespace: str, name: str) -> Workload | None:
        """Read an object as of some moment during the call. Raises Unavailable."""
        await asyncio.sleep(self._source.random() * self.list_seconds)
        stored = self._stored(resource, namespace, name)
        await asyncio.sleep(self._source.random() * self.list_seconds)
        if self._happens(self.lists_failing):
            raise ClusterUnavailable("the read timed out")
        return stored

    def watch_pods(self) -> AsyncGenerator[Change[Pod], None]:
        """Yield all pods and their changes."""
        return self._watch(self._server.pods, unchanged)

    def watch_quotas(self) -> AsyncGenerator[Change[ResourceQuota], None]:
        """Yield all ResourceQuotas and their changes."""
        return self._watch(self._server.quotas, unchanged)

    def watch_objects(self, resource: Resource) -> AsyncGenerator[Change[Workload], None]:
        """Yield all objects of a kind and their changes."""
        return self._watch(self._server.others[resource.name], unchanged)

    def watch_filtered(
        self, resource: Resource, keep: Callable[[Workload], K]
    ) -> AsyncGenerator[Change[K], None]:
        """Yield all objects of a kind and their changes, each as `keep` returns it."""
        return self._watch(self._server.others[resource.name], keep)

    def watch_namespaces(self) -> AsyncGenerator[Change[Workload], None]:
        """Yield all namespaces and their changes."""
        return self.watch_objects(NAMESPACES)

    def watch_policies(self) -> AsyncGenerator[Change[Workload], None]:
        """Yield all LedgerPolicies and their changes."""
        return self.watch_objects(POLICIES)

    async def patch_quota_status(
        self, namespace: str, name: str, used: dict[str, str], version: int
    ) -> None:
        """Write the usage of a quota. Raises Unavailable, NotFound, Conflict."""
        await self._answer()
        stored = self._server.quotas.objects.get((namespace, name))
        if stored is None:
            raise NotFound(f"{namespace}/{name}")
        told = msgspec.structs.replace(stored, status=ResourceQuotaStatus({**used}))
        try:
            self._server.quotas.write(told, version)
        except apiserver.Conflict as error:
            raise VersionConflict(str(error)) from error

    async def replace_status(self, resource: Resource, name: str, status: dict[str, Any]) -> None:
        """Write the status of an object without a namespace. Raises Unavailable, NotFound."""
        await self._answer()
        others = self._server.others[resource.name]
        stored = others.objects.get(("", name))
        if stored is None:
            raise NotFound(name)
        told = msgspec.structs.replace(stored, status=status)
        others.write(told, stored.metadata.version())

    async def create_quota(self, namespace: str, name: str, hard: Quantities) -> bool:
        """Create a ResourceQuota that is not there. Raises Unavailable."""
        await self._answer()
        if (namespace, name) in self._server.quotas.objects:
            return False
        self._server.set_quota(
            namespace, name, {key: str(quantity) for key, quantity in hard.items()}, ""
        )
        return True

    async def remove_gate(self, namespace: str, name: str, gate: str, version: int) -> None:
        """Remove a gate of a pod. Raises Unavailable, NotFound, Conflict."""
        await self._answer()
        stored = self._server.pods.objects.get((namespace, name))
        if stored is None:
            raise NotFound(f"{namespace}/{name}")
        left = [other for other in stored.spec.scheduling_gates or () if other.name != gate]
        spec = msgspec.structs.replace(stored.spec, scheduling_gates=left)
        try:
            self._server.write(msgspec.structs.replace(stored, spec=spec), version)
        except apiserver.Conflict as error:
            raise VersionConflict(str(error)) from error

    async def create_event(self, event: PodEvent) -> None:
        """Take an event and discard it."""
        del event

    def _stored(self, resource: Resource, namespace: str, name: str) -> Workload | None:
        if resource != PODS:
            return self._server.others[resource.name].objects.get((namespace, name))
        pod = self._server.pods.objects.get((namespace, name))
        if pod is None:
            return None
        spec, status = (msgspec.to_builtins(part) for part in (pod.spec, pod.status))
        return Workload(PODS.api_version, PODS.kind, pod.metadata, spec, status)

    async def _list(self, collection: Collection[T], namespace: str) -> Listed[T]:
        await asyncio.sleep(self._source.random() * self.list_seconds)
        objects = [item for (space, _), item in collection.objects.items() if space == namespace]
        version = self._server.versions.version
        await asyncio.sleep(self._source.random() * self.list_seconds)
        if self._happens(self.lists_failing):
            raise ClusterUnavailable("the list timed out")
        return Listed(version, objects)

    async def _watch(
        self, collection: Collection[T], keep: Callable[[T], K]
    ) -> AsyncGenerator[Change[K], None]:
        while True:
            listed_at = told = len(collection.history)
            listed = Listed(
                self._server.versions.version, [keep(item) for item in collection.objects.values()]
            )
            expirations = self._expirations
            await self._delay()
            yield listed
            while expirations == self._expirations:
                if told == len(collection.history):
                    await self._server.versions.news()
                    continue
                await self._delay()
                if expirations != self._expirations:
                    break
                if self._happens(self.trouble):
                    yield Interrupted("the connection broke")
                    await asyncio.sleep(AGAIN_SECONDS * self._source.random())
                    told = max(listed_at, told - self._source.randint(0, REPEATED_MAX))
                change = collection.history[told]
                told += 1
                yield Changed(change.version, keep(change.object), change.deleted)
                if self._happens(self.trouble):
                    yield Reached(change.version)
            yield Interrupted("the history is gone")
            await self._delay()

    async def _answer(self) -> None:
        await self._hop()
        if self._happens(self.trouble):
            raise ClusterUnavailable("the API server does not answer")

    async def _delay(self) -> None:
        await self._hop()
        now = asyncio.get_running_loop().time()
        if now < self._stalled_until:
            await asyncio.sleep(self._stalled_until - now)

    async def _hop(self) -> None:
        await asyncio.sleep(self._source.random() * HOP_SECONDS_MAX)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._source.random() < share


def unchanged(seen: T) -> T:
    """Keep everything of what is seen."""
    return seen
