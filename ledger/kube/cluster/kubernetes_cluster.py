"""Kubernetes cluster: all ports of `ledger.kube.api.cluster_ports`, over HTTPS."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from ledger.kube.api import api_resources
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import Malformed, NotFound, NotServed
from ledger.kube.api.cluster_ports import Change, Listed, PodBinding, PodEvent
from ledger.kube.api.disruption_budgets import Budget, BudgetList
from ledger.kube.api.objects import (
    ApiNode,
    Bookmark,
    NodeList,
    Pod,
    PodList,
    Quantities,
    ResourceQuota,
    ResourceQuotaList,
    Workload,
)
from ledger.kube.client import pod_events, quota_and_gate_writes, scheduling_writes
from ledger.kube.client.api_client import ApiClient
from ledger.kube.watch import discovery, list_watch, optional_resources
from ledger.kube.watch.list_watch import CollectionSource, watch_backoff, whole
from ledger.kube.watch.optional_resources import Sleep
from ledger.kube.watch.watch_encodings import protobuf_events

K = TypeVar("K")
T = TypeVar("T")

_PODS: Final = CollectionSource(
    api_resources.PODS.collection(),
    Pod,
    page_type=PodList,
    keep=whole,
    protobuf=protobuf_events(Pod, api_resources.PODS.kind),
)
_QUOTAS: Final = CollectionSource(
    api_resources.QUOTAS.collection(), ResourceQuota, page_type=ResourceQuotaList, keep=whole
)
_NODES: Final = CollectionSource(
    api_resources.NODES.collection(), ApiNode, page_type=NodeList, keep=whole
)
_BUDGETS: Final = CollectionSource(
    api_resources.BUDGETS.collection(), Budget, page_type=BudgetList, keep=whole
)
_metadata: Final = msgspec.json.Decoder(Bookmark)
_workloads: Final = msgspec.json.Decoder(Workload)


class KubernetesCluster:
    """A cluster, accessed through its API server. Errors and deadlines are those of the client.

    Implements `WatchedCluster`, `Workloads`, `FilteredWatches`, `PolicyWatches`, `StatusWrites`,
    `NodeWatches`, `AllocationApi` and `EvictionApi`, whose docstrings apply here.
    """

    def __init__(
        self,
        client: ApiClient,
        sleep: Sleep = asyncio.sleep,
        *,
        reporter: pod_events.EventReporter = pod_events.SERVICE,
    ) -> None:
        """`sleep` waits between attempts; `reporter` is the reporting component of events."""
        self._client = client
        self._sleep = sleep
        self._reporter = reporter

    async def kube_system_uid(self) -> str:
        """Return the uid of `kube-system`, which identifies the cluster. Raises ClusterError."""
        body = await self._client.get(api_resources.NAMESPACES.object("", "kube-system"))
        try:
            uid = _metadata.decode(body).metadata.uid
        except msgspec.MsgspecError as error:
            raise Malformed(f"namespace kube-system does not decode: {error}") from error
        if not uid:
            raise Malformed("namespace kube-system has no uid")
        return uid

    async def list_pods(self, namespace: str) -> Listed[Pod]:
        """List a namespace's pods as of now, linearizably. Raises ClusterError."""
        path = api_resources.PODS.collection(namespace)
        return await list_watch.list_all(self._client, _PODS, path)

    def watch_pods(self) -> AsyncGenerator[Change[Pod], None]:
        """Yield all pods and their changes, without end."""
        return list_watch.watch(self._client, _PODS, watch_backoff(self._sleep))

    def watch_quotas(self) -> AsyncGenerator[Change[ResourceQuota], None]:
        """Yield all ResourceQuotas and their changes, without end."""
        return list_watch.watch(self._client, _QUOTAS, watch_backoff(self._sleep))

    async def served(self) -> tuple[Resource, ...]:
        """Return the served resources, each in its preferred version. Raises ClusterError."""
        return (await discovery.discover(self._client)).preferred()

    async def list_objects(self, resource: Resource, namespace: str = "") -> Listed[Workload]:
        """List objects as of now, linearizably. Raises ClusterError."""
        source = optional_resources.source_of(resource, whole)
        return await list_watch.list_all(self._client, source, resource.collection(namespace))

    async def get_object(self, resource: Resource, namespace: str, name: str) -> Workload | None:
        """Read an object as of now, linearizably; None without one. Raises ClusterError."""
        return await self._get(resource.object(namespace, name), _workloads)

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """Read a pod as of now, linearizably; None without one. Raises ClusterError."""
        return await self._get(api_resources.PODS.object(namespace, name), _PODS.objects)

    async def get_node(self, name: str) -> ApiNode | None:
        """Read a node as of now, linearizably; None without one. Raises ClusterError."""
        return await self._get(api_resources.NODES.object("", name), _NODES.objects)

    async def list_nodes(self) -> Listed[ApiNode]:
        """List all nodes as of now, linearizably. Raises ClusterError."""
        return await list_watch.list_all(self._client, _NODES)

    def watch_nodes(self) -> AsyncGenerator[Change[ApiNode], None]:
        """Yield all nodes and their changes, without end."""
        return list_watch.watch(self._client, _NODES, watch_backoff(self._sleep))

    def watch_objects(self, resource: Resource) -> AsyncGenerator[Change[Workload], None]:
        """Yield all objects of a resource and their changes, without end."""
        return self.watch_filtered(resource, whole)

    def watch_filtered(
        self, resource: Resource, keep: Callable[[Workload], K]
    ) -> AsyncGenerator[Change[K], None]:
        """Yield `keep` of all objects of a resource, and of their changes, without end."""
        return optional_resources.watch(self._client, resource, keep, self._sleep)

    def watch_namespaces(self) -> AsyncGenerator[Change[Workload], None]:
        """Yield all namespaces and their changes, without end."""
        return self.watch_objects(api_resources.NAMESPACES)

    def watch_policies(self) -> AsyncGenerator[Change[Workload], None]:
        """Yield all LedgerPolicies and their changes, without end."""
        return self.watch_objects(api_resources.POLICIES)

    async def patch_quota_status(
        self, namespace: str, name: str, used: dict[str, str], version: int
    ) -> None:
        """Write a ResourceQuota's usage. Raises ClusterError, ValueError."""
        await quota_and_gate_writes.patch_quota_status(self._client, namespace, name, used, version)

    async def replace_status(self, resource: Resource, name: str, status: dict[str, Any]) -> None:
        """Replace the status of an object without a namespace. Raises ClusterError."""
        await quota_and_gate_writes.replace_status(self._client, resource, name, status)

    async def create_quota(self, namespace: str, name: str, hard: Quantities) -> bool:
        """Create a ResourceQuota unless there is one. Raises ClusterError."""
        return await quota_and_gate_writes.create_quota(self._client, namespace, name, hard)

    async def remove_gate(self, namespace: str, name: str, gate: str, version: int) -> None:
        """Remove a pod's scheduling gate. Raises ClusterError."""
        await quota_and_gate_writes.remove_gate(self._client, namespace, name, gate, version)

    async def bind(self, binding: PodBinding) -> None:
        """Bind a pod to a node. Raises ClusterError."""
        await scheduling_writes.bind(self._client, binding)

    async def list_pods_on(self, node: str) -> Listed[Pod]:
        """List the pods bound to a node as of now, linearizably. Raises ClusterError."""
        return await list_watch.list_all(self._client, _PODS, fields=f"spec.nodeName={node}")

    async def list_budgets(self, namespace: str) -> Listed[Budget]:
        """List a namespace's PodDisruptionBudgets as of now, linearizably. Raises ClusterError."""
        path = api_resources.BUDGETS.collection(namespace)
        return await list_watch.list_all(self._client, _BUDGETS, path)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Ask for the eviction of a pod. Raises ClusterError, BudgetExhausted among them."""
        await scheduling_writes.evict(self._client, namespace, name, uid)

    async def label_pod(
        self, namespace: str, name: str, labels: Mapping[str, str], version: str
    ) -> None:
        """Set labels of a pod with this resourceVersion. Raises ClusterError."""
        await scheduling_writes.label_pod(self._client, namespace, name, labels, version)

    async def patch_node_annotations(
        self, name: str, changes: Mapping[str, str | None], version: str = ""
    ) -> None:
        """Set and remove annotations of a node. Raises ClusterError."""
        await scheduling_writes.patch_node_annotations(self._client, name, changes, version)

    async def patch_pod_annotations(
        self, namespace: str, name: str, changes: Mapping[str, str], version: str
    ) -> None:
        """Set annotations of a pod with this resourceVersion. Raises ClusterError."""
        await scheduling_writes.patch_pod_annotations(
            self._client, namespace, name, changes, version
        )

    async def create_event(self, event: PodEvent) -> None:
        """Write an event about a pod. Raises ClusterError."""
        await pod_events.create(self._client, event, self._reporter)

    async def _get(self, path: str, decoder: msgspec.json.Decoder[T]) -> T | None:
        """Read one object; None when it does not exist. Raises ClusterError."""
        try:
            return decoder.decode(await self._client.get(path))
        except NotServed:
            raise
        except NotFound:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Malformed(f"{path} does not decode: {error}") from error
