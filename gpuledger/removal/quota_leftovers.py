"""Quota leftovers: default quotas, quotas of zero, and the usage in the status of quotas.

Kubernetes counts `requests.` keys of extended resources and enforces them with and without this
product: with 0, no pod that asks for the resource is created. It stores keys of `limits.` and plain
keys and enforces neither. So a `limits.` key of 0 ends with this product, and a `requests.` key of
0 stays.
"""

import functools
from enum import StrEnum
from typing import Any, Final

import msgspec

from gpuledger.removal.removal_tasks import RemovalTask, RemovedThing, deleting, merging
from ledger.kube.api.api_resources import QUOTAS, Resource
from ledger.kube.api.cluster_errors import NotServed
from ledger.kube.api.objects import (
    ListMeta,
    ObjectMeta,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    Workload,
)
from ledger.kube.client import quota_and_gate_writes
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.quota_and_gate_writes import DEFAULT_QUOTA_LABEL, FIELD_MANAGER, OWN_KEYS
from ledger.kube.requests import quantities
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.quantities import QuantityError
from ledger.kube.watch import list_watch, optional_resources
from ledger.kube.watch.list_watch import CollectionSource

_ENFORCED: Final = "requests."
_SPEC: Final = "f:spec"


class ZeroQuotas(StrEnum):
    """The treatment of a key of 0 in a user's quota that Kubernetes enforces."""

    REPORT = "report"
    DELETE = "delete"


class _Manager(msgspec.Struct, frozen=True):
    manager: str = ""
    subresource: str = ""
    fields: dict[str, Any] = msgspec.field(default_factory=dict, name="fieldsV1")


class _QuotaMeta(ObjectMeta, frozen=True, rename="camel"):
    managed_fields: list[_Manager] | None = None


class _Quota(msgspec.Struct, frozen=True):
    metadata: _QuotaMeta = _QuotaMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class _Quotas(msgspec.Struct, frozen=True):
    metadata: ListMeta
    items: list[_Quota] | None = None


async def find_quotas(client: ApiClient, rules: DemandRules, zero: ZeroQuotas) -> list[RemovalTask]:
    """Return the default quotas, quotas of zero, and written statuses. Raises ClusterError."""
    keep = functools.partial(_tasks, client, _enforced_keys(rules), zero)
    source = CollectionSource(QUOTAS.collection(), _Quota, page_type=_Quotas, keep=keep)
    listed = await list_watch.list_all(client, source)
    return [task for tasks in listed.objects for task in tasks]


def _enforced_keys(rules: DemandRules) -> frozenset[str]:
    return frozenset(f"{_ENFORCED}{name}" for name in (*rules.of_cards, *rules.besides))


def _tasks(
    client: ApiClient, enforced: frozenset[str], zero: ZeroQuotas, quota: _Quota
) -> list[RemovalTask]:
    meta = quota.metadata
    path = QUOTAS.object(meta.namespace, meta.name)
    name = meta.full_name()
    if _is_default(meta):
        thing = RemovedThing("resourcequota", name, "delete the default quota")
        return [RemovalTask(thing, deleting(client, path, meta.uid))]
    tasks = []
    if DEFAULT_QUOTA_LABEL in (meta.labels or {}):
        tasks.append(_unlabelling(client, path, meta))
    hard = quota.spec.hard or {}
    blocking = sorted(key for key in hard if key in enforced and _is_zero(hard[key]))
    if blocking:
        tasks.append(_blocking(client, path, name, blocking, zero))
    ours = sorted(key for key in quota.status.used or {} if key.startswith(OWN_KEYS) and "/" in key)
    if ours:
        thing = RemovedThing("resourcequota", name, f"remove status.used of {', '.join(ours)}")
        patch = {"status": {"used": dict.fromkeys(ours)}}
        tasks.append(RemovalTask(thing, merging(client, f"{path}/status", patch)))
    return tasks


def _unlabelling(client: ApiClient, path: str, meta: _QuotaMeta) -> RemovalTask:
    writers = ", ".join(sorted(_writers(meta) - {FIELD_MANAGER})) or "a user"
    action = f"remove the label {DEFAULT_QUOTA_LABEL}; the limits of {writers} stay"
    patch = {"metadata": {"labels": {DEFAULT_QUOTA_LABEL: None}}}
    thing = RemovedThing("resourcequota", meta.full_name(), action)
    return RemovalTask(thing, merging(client, path, patch))


def _blocking(
    client: ApiClient, path: str, name: str, keys: list[str], zero: ZeroQuotas
) -> RemovalTask:
    named = ", ".join(keys)
    if zero is ZeroQuotas.REPORT:
        return RemovalTask(
            RemovedThing("resourcequota", name, f"Kubernetes enforces {named}=0"), None
        )
    thing = RemovedThing("resourcequota", name, f"remove {named}=0")
    return RemovalTask(thing, merging(client, path, {"spec": {"hard": dict.fromkeys(keys)}}))


def _is_default(meta: _QuotaMeta) -> bool:
    """Return whether the service has created a quota, and nothing else has changed its limits.

    A copy of such a quota has the label, and the limits of the user who made it. Quotas of versions
    before the label are known by the writer.
    """
    writers = _writers(meta)
    if writers - {FIELD_MANAGER}:
        return False
    return FIELD_MANAGER in writers or (meta.labels or {}).get(DEFAULT_QUOTA_LABEL) == "true"


def _writers(meta: _QuotaMeta) -> set[str]:
    """Return the field managers that have written the spec."""
    return {
        manager.manager
        for manager in meta.managed_fields or ()
        if not manager.subresource and _SPEC in manager.fields
    }


def _is_zero(quantity: str | int) -> bool:
    try:
        return quantities.parse_scaled(quantity) == 0
    except QuantityError:
        return False


async def find_statuses(client: ApiClient, resource: Resource) -> list[RemovalTask]:
    """Return the objects of one of our own kinds that have a status. Raises ClusterError."""
    source = optional_resources.source_of(resource, list_watch.whole)
    try:
        listed = await list_watch.list_all(client, source)
    except NotServed:
        return []
    return [_cleared(client, resource, seen) for seen in listed.objects if seen.status]


def _cleared(client: ApiClient, resource: Resource, seen: Workload) -> RemovalTask:
    name = seen.metadata.name
    undo = functools.partial(quota_and_gate_writes.replace_status, client, resource, name, {})
    return RemovalTask(RemovedThing(resource.kind.lower(), name, "clear the status"), undo)
