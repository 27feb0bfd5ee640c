"""Scheduling writes: Bindings, evictions, labels of pods, annotations of nodes and pods.

A Binding has the pod's new annotations and labels. The API server merges them into the pod in the
write that sets its node: all of it is stored, or nothing. The pod's uid and, if known, its version
are preconditions. No write is retried here. After a Binding without an answer the caller must read
whether it was stored, because a retry could bind the pod twice.
"""

from collections.abc import Mapping
from typing import Final

from ledger.kube.api.api_resources import NODES, PODS
from ledger.kube.api.cluster_ports import PodBinding
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.quota_and_gate_writes import MERGE, send

EVICTION: Final = "policy/v1"
"""The group and version of evictions."""

EVICT_SECONDS: Final = 20.0
"""Deadline of one eviction. The API server itself retries conflicts, such as another uid, for up
to 11 s before it answers."""


async def bind(client: ApiClient, binding: PodBinding) -> None:
    """Bind a pod to a node. Raises ClusterError."""
    metadata = {
        "name": binding.name,
        "namespace": binding.namespace,
        "uid": binding.uid,
        "annotations": binding.annotations,
        "labels": binding.labels,
    }
    if binding.version:
        metadata["resourceVersion"] = binding.version
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": NODES.kind, "name": binding.node},
    }
    await send(client, "POST", f"{PODS.object(binding.namespace, binding.name)}/binding", body)


async def evict(client: ApiClient, namespace: str, name: str, uid: str) -> None:
    """Evict the pod of this uid. Raises ClusterError, BudgetExhausted among them."""
    body = {
        "apiVersion": EVICTION,
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    path = f"{PODS.object(namespace, name)}/eviction"
    await send(client, "POST", path, body, seconds=EVICT_SECONDS)


async def label_pod(
    client: ApiClient, namespace: str, name: str, labels: Mapping[str, str], version: str
) -> None:
    """Set labels of a pod with this resourceVersion. Raises ClusterError."""
    metadata = {"labels": labels, "resourceVersion": version}
    await send(client, "PATCH", PODS.object(namespace, name), {"metadata": metadata}, MERGE)


async def patch_node_annotations(
    client: ApiClient, name: str, changes: Mapping[str, str | None], version: str
) -> None:
    """Set annotations of a node, and remove those that are None. Raises ClusterError."""
    metadata: dict[str, object] = {"annotations": changes}
    if version:
        metadata["resourceVersion"] = version
    await send(client, "PATCH", NODES.object("", name), {"metadata": metadata}, MERGE)


async def patch_pod_annotations(
    client: ApiClient, namespace: str, name: str, changes: Mapping[str, str], version: str
) -> None:
    """Set annotations of a pod with this resourceVersion. Raises ClusterError."""
    metadata = {"annotations": changes, "resourceVersion": version}
    await send(client, "PATCH", PODS.object(namespace, name), {"metadata": metadata}, MERGE)
