"""Owner cluster: objects that own one another, and a cluster that serves them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
from support.builders.admission_reviews import CLUSTER, GPU, MEMORY
from support.builders.cluster_contexts import cluster_context

from ledger.core.model.state import State
from ledger.kube.api.api_resources import DEVICE_CLASSES, NAMESPACES, Resource
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import Workload
from ledger.kube.requests.demand_rules import DemandRules
from webhook.context.cluster_context import ClusterContext
from webhook.context.namespace_policies import NamespacePolicy
from webhook.kinds.kind_catalog import KindCatalog

Manifest = dict[str, Any]

CATALOG = KindCatalog.load()
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
CRONJOBS = Resource("batch", "v1", "cronjobs", "CronJob")
STATEFUL = Resource("apps", "v1", "statefulsets", "StatefulSet")
LEADERS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")

DEPLOYER = "system:serviceaccount:kube-system:deployment-controller"
REPLICATOR = "system:serviceaccount:kube-system:replicaset-controller"
CARD = {GPU: "1", MEMORY: "8k"}


def template(limits: dict[str, str] | None = None, **labels: str) -> Manifest:
    """Return a pod template with one container."""
    resources = {"limits": CARD if limits is None else limits}
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }


def manifest(
    resource: Resource,
    name: str = "web",
    *,
    owner: Manifest | None = None,
    version: int = 5,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """Return an object as it is stored; by default one pod of one card of 8000 MiB."""
    body: Manifest = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"u-{name}",
            "resourceVersion": str(version),
            "generation": 1,
        },
        "spec": {"template": template(), **spec},
    }
    if labels is not None:
        body["metadata"]["labels"] = labels
    if owner is not None:
        body["metadata"]["ownerReferences"] = [controlled_by(owner)]
    return body


def controlled_by(owner: Manifest, **changed: Any) -> Manifest:
    """Return the reference to a controller."""
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        **changed,
    }


def of(resource: Resource, subresource: str = "") -> Manifest:
    """Return a review's description of the resource."""
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    where = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    description: Manifest = {"kind": kind, "resource": where}
    return {**description, "subResource": subresource} if subresource else description


class FixedView:
    """A fixed state of the ledger, for readers."""

    def __init__(self) -> None:
        self.state = State()


class OwnerCluster:
    """A cluster that reads objects from a dictionary, slowly or not at all on request."""

    def __init__(self, *objects: Manifest) -> None:
        self.objects = {_address(body): body for body in objects}
        self.failing: ClusterError | None = None
        self.silent = False
        self.asked: list[tuple[str, str]] = []
        self.policies: asyncio.Queue[Change[Workload]] = asyncio.Queue()
        self.namespaces: asyncio.Queue[Change[Workload]] = asyncio.Queue()
        self.kinds: dict[str, asyncio.Queue[Change[Workload]]] = {}
        self.of_claims: dict[str, asyncio.Queue[Change[Workload]]] = {}
        self.serves: tuple[Resource, ...] = ()
        self.discovered = 0
        self.watches: list[str] = []
        self.versions: list[str] = []

    def put(self, thing: Manifest) -> None:
        self.objects[_address(thing)] = thing

    def namespace(self, name: str = "team", **labels: str) -> None:
        metadata = {"name": name, "labels": labels, "resourceVersion": "1"}
        self.put({"kind": NAMESPACES.kind, "metadata": metadata})

    async def served(self) -> tuple[Resource, ...]:
        self.discovered += 1
        if self.failing is not None:
            raise self.failing
        return self.serves

    async def list_objects(self, resource: Resource, namespace: str = "") -> Listed[Workload]:
        raise AssertionError("the context never lists by themselves")

    async def get_object(self, resource: Resource, namespace: str, name: str) -> Workload | None:
        self.asked.append((resource.name, name))
        if self.silent:
            await asyncio.Event().wait()
        if self.failing is not None:
            raise self.failing
        stored = self.objects.get((resource.kind, namespace, name))
        return None if stored is None else msgspec.convert(stored, Workload)

    def watch_objects(self, resource: Resource) -> AsyncGenerator[Change[Workload], None]:
        return self.watch_filtered(resource, lambda seen: seen)

    async def watch_filtered(
        self, resource: Resource, keep: Callable[[Workload], Any]
    ) -> AsyncGenerator[Change[Any], None]:
        if resource.group == DEVICE_CLASSES.group:
            changes = self.of_claims.setdefault(resource.plural, asyncio.Queue())
        else:
            self.watches.append(resource.name)
            self.versions.append(resource.version)
            changes = self.kinds.setdefault(resource.name, asyncio.Queue())
        while True:
            change = await changes.get()
            if isinstance(change, Listed):
                yield Listed(change.version, [keep(workload) for workload in change.objects])
            elif isinstance(change, Changed):
                yield Changed(change.version, keep(change.object), change.deleted)
            else:
                yield change

    def watch_namespaces(self) -> AsyncGenerator[Change[Workload], None]:
        return _told(self.namespaces)

    def watch_policies(self) -> AsyncGenerator[Change[Workload], None]:
        return _told(self.policies)


def around(
    view: Any,
    cluster: OwnerCluster | None = None,
    *,
    default: NamespacePolicy | None = None,
    catalog: KindCatalog = CATALOG,
    policies_known: bool = True,
    rules: DemandRules | None = None,
) -> ClusterContext:
    """Return the context of a replica that has received all policies: there are none."""
    rules = rules or DemandRules()
    context = cluster_context(
        CLUSTER, view, catalog=catalog, rules=rules, cluster=cluster, default=default
    )
    if policies_known:
        context.policies.take(Listed(1, []))
    return context


def policy(name: str, version: int = 1, **spec: Any) -> Workload:
    """Return a LedgerPolicy."""
    metadata = {"name": name, "resourceVersion": str(version)}
    return msgspec.convert({"kind": "LedgerPolicy", "metadata": metadata, "spec": spec}, Workload)


def remember(context: ClusterContext, resource: Resource, *things: Manifest) -> Any:
    """Return the task that feeds the cache of owners with a list of these objects."""
    parents = context.parents
    listed = [parents.parent_of(resource, msgspec.convert(owner, Workload)) for owner in things]
    return parents.feed(resource, Listed(9, listed))


async def _told(changes: asyncio.Queue[Change[Workload]]) -> AsyncGenerator[Change[Workload], None]:
    while True:
        yield await changes.get()


def _address(thing: Manifest) -> tuple[str, str, str]:
    meta = thing["metadata"]
    return thing["kind"], meta.get("namespace", ""), meta["name"]
