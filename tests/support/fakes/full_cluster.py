"""Full cluster: a model with workloads of any kind, namespaces, policies and writes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
from support.fakes.apiserver import FakeApiServer, FakeCluster, Object

from ledger.kube.api.api_resources import NAMESPACES, POLICIES, UNIVERSE_QUOTAS, Resource
from ledger.kube.api.cluster_errors import ClusterError, NotFound, NotServed, VersionConflict
from ledger.kube.api.cluster_ports import Change, Changed, Interrupted, Listed, PodEvent
from ledger.kube.api.objects import Workload

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICASETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFULSETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
CRONJOBS = Resource("batch", "v1", "cronjobs", "CronJob")
BUILT_IN = (DEPLOYMENTS, REPLICASETS, STATEFULSETS, JOBS, CRONJOBS, UNIVERSE_QUOTAS)


class FullCluster(FakeCluster):
    """The model behind all ports. `kinds` are what is served; tests change it.

    `unproved` lets a kind that is not served be absent without proof. `refusing` is what writes
    answer, `undiscovered` what discovery answers, `writes` and `events` what was written.
    `forbidden` is the reason, by kind, why it may not be read; the definitions of `without_status`
    have no status.
    """

    def __init__(self, server: FakeApiServer) -> None:
        super().__init__(server)
        self.kinds = {resource.name: resource for resource in BUILT_IN}
        self.unproved = False
        self.refusing: ClusterError | None = None
        self.undiscovered: ClusterError | None = None
        self.forbidden: dict[str, str] = {}
        self.without_status: set[Resource] = set()
        self.writes: list[tuple[Any, ...]] = []
        self.events: list[PodEvent] = []
        self.reads = 0
        self.lists: list[tuple[str, str]] = []

    async def list_pods(self, namespace: str):
        self.lists.append(("pods", namespace))
        return await super().list_pods(namespace)

    async def served(self) -> tuple[Resource, ...]:
        if self.undiscovered is not None:
            raise self.undiscovered
        return tuple(self.kinds.values())

    async def list_objects(self, resource: Resource, namespace: str = "") -> Listed[Workload]:
        self.lists.append((resource.name, namespace))
        self._check(resource)
        bodies = self.server.list(resource.name, namespace)
        return Listed(self.server.version, [_workload(body) for body in bodies])

    async def get_object(self, resource: Resource, namespace: str, name: str) -> Workload | None:
        self.reads += 1
        if self.server.failing is not None:
            raise self.server.failing
        body = self.server.objects.get((resource.name, namespace, name))
        return None if body is None else _workload(body)

    def watch_objects(self, resource: Resource) -> AsyncGenerator[Change[Workload], None]:
        return self.watch_filtered(resource, lambda seen: seen)

    async def watch_filtered(
        self, resource: Resource, keep: Callable[[Workload], Any]
    ) -> AsyncGenerator[Change[Any], None]:
        while True:
            if self.kinds.get(resource.name) == resource and resource.name not in self.forbidden:
                async with contextlib.aclosing(self._told(resource, keep)) as changes:
                    async for change in changes:
                        yield change
            reason = self.forbidden.get(resource.name)
            if reason:
                yield Interrupted(reason)
                await asyncio.Event().wait()
            yield Interrupted(f"{resource.name} is not served", absent=True)
            if not self.unproved:
                yield Listed(self.server.version, [])
            while self.kinds.get(resource.name) != resource:  # noqa: ASYNC110 - a test turns it
                await asyncio.sleep(0.02)

    def watch_namespaces(self) -> AsyncGenerator[Change[Workload], None]:
        return self._always(NAMESPACES)

    def watch_policies(self) -> AsyncGenerator[Change[Workload], None]:
        return self._always(POLICIES)

    async def patch_quota_status(
        self, namespace: str, name: str, used: dict[str, str], version: int
    ) -> None:
        body = self._written("resourcequotas", namespace, name, version)
        self.writes.append(("quota status", namespace, name, used))
        merged = {**body.get("status", {}).get("used", {}), **used}
        self.server.update("resourcequotas", namespace, name, status={"used": merged})

    async def replace_status(self, resource: Resource, name: str, status: dict[str, Any]) -> None:
        if resource in self.without_status:
            self.writes.append(("status", resource.plural, name, None))
            raise NotFound(f"{resource.name} {name}")
        self._written(resource.name, "", name)
        self.writes.append(("status", resource.plural, name, status))
        self.server.update(resource.name, "", name, status=status)

    async def create_quota(self, namespace: str, name: str, hard: dict[str, Any]) -> bool:
        if self.refusing is not None:
            raise self.refusing
        self.writes.append(("quota", namespace, name, hard))
        if ("resourcequotas", namespace, name) in self.server.objects:
            return False
        body = {"metadata": {"name": name}, "spec": {"hard": hard}}
        self.server.create("resourcequotas", namespace, body)
        return True

    async def remove_gate(self, namespace: str, name: str, gate: str, version: int) -> None:
        body = self._written("pods", namespace, name, version)
        gates = [
            other for other in body["spec"].get("schedulingGates", []) if other["name"] != gate
        ]
        self.writes.append(("gate", namespace, name))
        self.server.update("pods", namespace, name, spec={"schedulingGates": gates})

    async def create_event(self, event: PodEvent) -> None:
        if self.refusing is not None:
            raise self.refusing
        self.events.append(event)

    def _written(self, kind: str, namespace: str, name: str, version: int = 0) -> Object:
        if self.refusing is not None:
            raise self.refusing
        body = self.server.objects.get((kind, namespace, name))
        if body is None:
            raise NotFound(f"{kind} {namespace}/{name}")
        if version and int(body["metadata"]["resourceVersion"]) != version:
            raise VersionConflict(f"{kind} {namespace}/{name} is not at {version}")
        return body

    def _check(self, resource: Resource) -> None:
        if self.server.failing is not None:
            raise self.server.failing
        if self.kinds.get(resource.name) != resource:
            raise NotServed(resource.collection())

    async def _always(self, resource: Resource) -> AsyncGenerator[Change[Workload], None]:
        async with contextlib.aclosing(self._told(resource, lambda seen: seen)) as changes:
            async for change in changes:
                yield change

    async def _told(
        self, resource: Resource, keep: Callable[[Workload], Any]
    ) -> AsyncGenerator[Change[Any], None]:
        """Yield a kind while it is served as this resource."""
        after = self.server.version
        yield Listed(after, [keep(_workload(stored)) for stored in self.server.list(resource.name)])
        async with contextlib.aclosing(self.server.changes(resource.name, after)) as changes:
            while True:
                upcoming = asyncio.ensure_future(anext(changes))
                try:
                    while not (await asyncio.wait([upcoming], timeout=0.02))[0]:
                        if self.kinds.get(resource.name, resource) != resource or (
                            resource in (*BUILT_IN, JOBSETS) and resource.name not in self.kinds
                        ):
                            return
                finally:
                    if not upcoming.done():
                        upcoming.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            await upcoming
                version, change, body = upcoming.result()
                yield Changed(version, keep(_workload(body)), deleted=change == "DELETED")


def template(gpu: int = 1, gpumem: int = 1000, **labels: str) -> Object:
    limits = {"nvidia.com/gpu": str(gpu), "nvidia.com/gpumem": str(gpumem)}
    container = {"name": "main", "resources": {"limits": limits}}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container]}}


def deployment(name: str, replicas: int = 2, **asks: Any) -> Object:
    return workload(DEPLOYMENTS, name, replicas=replicas, template=template(**asks))


def workload(resource: Resource, name: str, owner: Object | None = None, **spec: Any) -> Object:
    meta: Object = {"name": name, "generation": 1, "labels": {}}
    if owner is not None:
        meta["ownerReferences"] = [reference(owner)]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": meta,
        "spec": spec,
    }


def reference(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def _workload(body: Object) -> Workload:
    return msgspec.convert(body, Workload)
