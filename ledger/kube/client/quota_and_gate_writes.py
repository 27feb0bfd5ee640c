"""Quota and gate writes: statuses of quotas, new ResourceQuotas, and removed scheduling gates.

Each is one write, which the API server applies whole or not at all. A write to fields that other
clients also write has a precondition; the statuses of our own kinds are always replaced. No write
is retried here, because only the caller can decide whether it is still needed.
"""

from typing import Any, Final

import msgspec

from ledger.kube.api.api_resources import PODS, QUOTAS, Resource
from ledger.kube.api.cluster_errors import AlreadyExists
from ledger.kube.api.objects import Quantities
from ledger.kube.client.api_client import JSON, ApiClient

WRITE_SECONDS: Final = 10.0
"""Deadline of one write."""

FIELD_MANAGER: Final = "gpuledger"
"""The field manager under which the API server records the writes."""

DEFAULT_QUOTA_LABEL: Final = "gpuledger.io/default-quota"
"""Label of the ResourceQuotas that a LedgerPolicy demands; those of users do not have it."""

OWN_KEYS: Final = "limits."
"""Prefix of the quota keys that Kubernetes accepts but does not count."""

MERGE: Final = "application/merge-patch+json"
"""The content type of a merge patch: it has the changed fields, and null removes a field."""

_STRATEGIC: Final = "application/strategic-merge-patch+json"
_PATCH: Final = "application/json-patch+json"


async def patch_quota_status(
    client: ApiClient, namespace: str, name: str, used: dict[str, str], version: int
) -> None:
    """Merge usage into a ResourceQuota's status. Raises ValueError, ClusterError."""
    for key in used:
        # cpu and memory are counted by Kubernetes under `limits.` too, so the slash matters.
        if not (key.startswith(OWN_KEYS) and "/" in key):
            raise ValueError(
                f"status.used[{key!r}] of quota {namespace}/{name} is counted by Kubernetes; "
                f"only keys like {OWN_KEYS}nvidia.com/gpu may be written"
            )
    patch = {"metadata": {"resourceVersion": str(version)}, "status": {"used": used}}
    path = QUOTAS.object(namespace, name) + "/status"
    await send(client, "PATCH", path, patch, MERGE)


async def replace_status(
    client: ApiClient, resource: Resource, name: str, status: dict[str, Any]
) -> None:
    """Replace the status of an object without a namespace. Raises ClusterError.

    The status is not merged, because keys and clusters that are no longer covered must disappear.
    """
    patch = [{"op": "add", "path": "/status", "value": status}]
    await send(client, "PATCH", resource.object("", name) + "/status", patch, _PATCH)


async def create_quota(client: ApiClient, namespace: str, name: str, hard: Quantities) -> bool:
    """Create a policy's ResourceQuota unless there is one of that name. Raises ClusterError."""
    quota = {
        "apiVersion": QUOTAS.api_version,
        "kind": QUOTAS.kind,
        "metadata": {"name": name, "labels": {DEFAULT_QUOTA_LABEL: "true"}},
        "spec": {"hard": hard},
    }
    try:
        await send(client, "POST", QUOTAS.collection(namespace), quota)
    except AlreadyExists:
        return False
    return True


async def remove_gate(
    client: ApiClient, namespace: str, name: str, gate: str, version: int | None = None
) -> None:
    """Remove one scheduling gate of a pod, if given only at this version. Raises ClusterError.

    A strategic merge patch names the gate itself, where a JSON patch would name its index, which
    another controller may have moved.
    """
    patch: dict[str, object] = {"spec": {"schedulingGates": [{"$patch": "delete", "name": gate}]}}
    if version is not None:
        patch["metadata"] = {"resourceVersion": str(version)}
    await send(client, "PATCH", PODS.object(namespace, name), patch, _STRATEGIC)


async def send(
    client: ApiClient,
    method: str,
    path: str,
    body: object,
    kind: str = JSON,
    seconds: float = WRITE_SECONDS,
) -> None:
    """Send one write with this content type and the field manager. Raises ClusterError."""
    await client.request(
        method,
        path,
        params={"fieldManager": FIELD_MANAGER},
        body=msgspec.json.encode(body),
        content_type=kind,
        seconds=seconds,
    )
