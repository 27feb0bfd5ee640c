"""Cluster ports: the reads, watches and writes that gpuledger needs of an API server.

`ledger.kube.cluster.kubernetes_cluster` implements all of them; tests and the simulation use
models of an API server. The ports are small, so that a model implements only what its user calls.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.disruption_budgets import Budget
from ledger.kube.api.objects import ApiNode, Pod, Quantities, ResourceQuota, Workload

T = TypeVar("T")
K = TypeVar("K")


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """Everything that existed at one resourceVersion."""

    version: int
    objects: list[T]


class Changed(msgspec.Struct, Generic[T], frozen=True):
    """An object was written at `version`, or with `deleted` removed by that write."""

    version: int
    object: T
    deleted: bool = False


class Reached(msgspec.Struct, frozen=True):
    """A bookmark: every change up to `version` has been delivered."""

    version: int


class Interrupted(msgspec.Struct, frozen=True):
    """The watch is interrupted, for this reason; it goes on trying.

    `absent` when the API server does not serve the resource. If it can be proved that none of its
    objects exist then, a `Listed` without objects follows.
    """

    reason: str
    absent: bool = False


Change = Listed[T] | Changed[T] | Reached | Interrupted


class WatchedCluster(Protocol):
    """One cluster as settlement sees it. Every call has a deadline of its own."""

    async def kube_system_uid(self) -> str:
        """Return the uid of the `kube-system` namespace. Raises ClusterError."""
        ...

    async def list_pods(self, namespace: str) -> Listed[Pod]:
        """List a namespace's pods, linearizably: with every write that was finished before.

        Raises ClusterError; then nothing is known.
        """
        ...

    def watch_pods(self) -> AsyncGenerator[Change[Pod], None]:
        """Yield all pods, then their changes in order of versions, without end.

        Begins with a `Listed`; another one follows whenever the history was lost.
        """
        ...

    def watch_quotas(self) -> AsyncGenerator[Change[ResourceQuota], None]:
        """Yield all ResourceQuotas, then their changes, like `watch_pods`."""
        ...


class Workloads(Protocol):
    """Objects of any kind. Every call has a deadline of its own."""

    async def served(self) -> tuple[Resource, ...]:
        """Return the resources that can be listed and watched, in the server's preferred versions.

        Raises ClusterError.
        """
        ...

    async def list_objects(self, resource: Resource, namespace: str = "") -> Listed[Workload]:
        """List all objects, or those of a namespace, linearizably.

        Raises ClusterError, NotServed among them; then nothing is known.
        """
        ...

    async def get_object(self, resource: Resource, namespace: str, name: str) -> Workload | None:
        """Read one object, linearizably; None when it does not exist.

        Raises ClusterError, NotServed among them; then nothing is known.
        """
        ...

    def watch_objects(self, resource: Resource) -> AsyncGenerator[Change[Workload], None]:
        """Yield all objects, then their changes, like `WatchedCluster.watch_pods`.

        While the resource is not served, yields one `Interrupted` with `absent`, then an empty
        `Listed` if it can be proved that no object is left, and tries again from time to time.
        """
        ...

    def watch_namespaces(self) -> AsyncGenerator[Change[Workload], None]:
        """Yield all namespaces, then their changes."""
        ...


class FilteredWatches(Protocol):
    """Watches that keep only a part of each object."""

    def watch_filtered(
        self, resource: Resource, keep: Callable[[Workload], K]
    ) -> AsyncGenerator[Change[K], None]:
        """Yield like `Workloads.watch_objects`, with the result of `keep` for each object.

        `keep` is applied while a list is read, so that the list is never in memory in full. It
        must not raise.
        """
        ...


class PolicyWatches(Protocol):
    """A cluster whose namespaces may have LedgerPolicies."""

    def watch_policies(self) -> AsyncGenerator[Change[Workload], None]:
        """Yield all LedgerPolicies and their changes, like `Workloads.watch_objects`.

        A missing definition is reported as for any other kind.
        """
        ...


class PodEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a pod, as `kubectl describe pod` shows it.

    `reason` is a CamelCase word, `note` a sentence; `action` names what was tried.
    """

    namespace: str
    name: str
    uid: str
    reason: str
    note: str
    action: str
    warning: bool = False


class StatusWrites(Protocol):
    """Writes of settlement. All may raise ClusterError, such as VersionConflict or NotFound."""

    async def patch_quota_status(
        self, namespace: str, name: str, used: dict[str, str], version: int
    ) -> None:
        """Write usage of `limits.*` keys into a ResourceQuota's status, leaving other keys alone.

        Raises Conflict unless the quota is at `version`, and ValueError for any other key.
        """
        ...

    async def replace_status(self, resource: Resource, name: str, status: dict[str, Any]) -> None:
        """Replace the whole status of an object of a resource without namespaces.

        Raises NotFound also if the definition of the resource has no status.
        """
        ...

    async def create_quota(self, namespace: str, name: str, hard: Quantities) -> bool:
        """Create a ResourceQuota; return False, and change nothing, when the name is taken."""
        ...

    async def remove_gate(self, namespace: str, name: str, gate: str, version: int) -> None:
        """Remove one scheduling gate of a pod; nothing happens when it does not have it.

        Raises Conflict unless the pod is at `version`.
        """
        ...

    async def create_event(self, event: PodEvent) -> None:
        """Write an event about a pod."""
        ...


class PodBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's binding to a node, with annotations and labels merged into the pod in the same write.

    The preconditions are the pod's uid and, unless `version` is empty, its resourceVersion.
    """

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    version: str = ""


class NodeWatches(Protocol):
    """The watch of a cluster's nodes."""

    def watch_nodes(self) -> AsyncGenerator[Change[ApiNode], None]:
        """Yield all nodes, then their changes, like `WatchedCluster.watch_pods`."""
        ...


class BindingApi(Protocol):
    """Reads and writes of the binding of pods. Every call has its own deadline.

    All may raise ClusterError. After VersionConflict, NotFound, Forbidden or Rejected nothing is
    stored. After ClusterUnavailable, which covers time-outs, the write may be stored, or still be.
    """

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """Read a pod, linearizably; None when it does not exist."""
        ...

    async def get_node(self, name: str) -> ApiNode | None:
        """Read a node, linearizably; None when it does not exist."""
        ...

    async def bind(self, binding: PodBinding) -> None:
        """Bind a pod that is not bound yet; raises Conflict for one that is.

        Raises Conflict unless it is the pod of that uid and version.
        """
        ...

    async def label_pod(
        self, namespace: str, name: str, labels: Mapping[str, str], version: str
    ) -> None:
        """Set labels of a pod; others stay. Raises Conflict unless the pod is at `version`.

        Success does not prove a change, because admission may remove the labels.
        """
        ...

    async def patch_node_annotations(
        self, name: str, changes: Mapping[str, str | None], version: str = ""
    ) -> None:
        """Set annotations of a node, and remove those that are None; others stay.

        Raises Conflict unless the node is at `version`, where that is given.
        """
        ...


class AllocationApi(BindingApi, Protocol):
    """Writes of the cards that pods have; the promises of `BindingApi` hold here too."""

    async def patch_pod_annotations(
        self, namespace: str, name: str, changes: Mapping[str, str], version: str
    ) -> None:
        """Set annotations of a pod; others stay. Raises Conflict unless it is at `version`."""
        ...


class EvictionApi(Protocol):
    """Reads and writes of preemption; the promises of `BindingApi` hold here too."""

    async def list_pods_on(self, node: str) -> Listed[Pod]:
        """List the pods that are bound to a node, linearizably."""
        ...

    async def list_budgets(self, namespace: str) -> Listed[Budget]:
        """List the PodDisruptionBudgets of a namespace, linearizably."""
        ...

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Ask for the eviction of a pod, which then ends within its grace period.

        Raises Conflict unless the pod has that uid, and BudgetExhausted while a
        PodDisruptionBudget forbids it.
        """
        ...

    async def create_event(self, event: PodEvent) -> None:
        """Write an event about a pod."""
        ...
