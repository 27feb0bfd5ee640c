"""Pod role: the label by which the Service of the webhooks selects a replica.

A policy of the installation lets a replica set the label on its own pod only, and remove it from
any pod of the service. No write has a precondition, because the label has one meaning and a later
write repairs an earlier one.
"""

from typing import Final, NamedTuple

import msgspec

from ledger.kube.api.api_resources import PODS
from ledger.kube.api.cluster_errors import Malformed, NotFound
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.quota_and_gate_writes import FIELD_MANAGER, MERGE

LABEL: Final = "gpuledger.io/role"
REVIEWER: Final = "reviewer"
"""The value of the label."""

ROLE_SECONDS: Final = 2.0
"""Deadline of one read or write. A later attempt replaces one without an answer."""

_READY: Final = "Ready"


class PodRole(NamedTuple):
    """Whether a pod has the label, and whether it is ready and not being deleted."""

    labelled: bool
    serving: bool


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: _Status = _Status()


async def read(client: ApiClient, namespace: str, name: str) -> PodRole:
    """Return the role of a pod. Raises ClusterError."""
    path = PODS.object(namespace, name)
    return _role_of(path, await client.request("GET", path, seconds=ROLE_SECONDS))


async def give(client: ApiClient, namespace: str, name: str) -> PodRole:
    """Set the label, and return the role after it. Raises ClusterError."""
    return await _write(client, PODS.object(namespace, name), REVIEWER)


async def take(client: ApiClient, namespace: str, name: str) -> PodRole | None:
    """Remove the label, and return the role after it; None if the pod is gone. Raises
    ClusterError."""
    try:
        return await _write(client, PODS.object(namespace, name), None)
    except NotFound:
        return None


async def _write(client: ApiClient, path: str, value: str | None) -> PodRole:
    body = await client.request(
        "PATCH",
        path,
        params={"fieldManager": FIELD_MANAGER},
        body=msgspec.json.encode({"metadata": {"labels": {LABEL: value}}}),
        content_type=MERGE,
        seconds=ROLE_SECONDS,
    )
    return _role_of(path, body)


def _role_of(path: str, body: bytes) -> PodRole:
    try:
        pod = msgspec.json.decode(body, type=_Pod)
    except msgspec.MsgspecError as error:
        raise Malformed(f"{path} does not decode: {error}") from error
    conditions = pod.status.conditions or ()
    ready = any(each.type == _READY and each.status == "True" for each in conditions)
    labelled = (pod.metadata.labels or {}).get(LABEL) == REVIEWER
    return PodRole(labelled, ready and pod.metadata.deletion_timestamp is None)
