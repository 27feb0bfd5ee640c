"""Stopped parts: the service, the scheduler and the agents, stopped.

Also the pod of `helm test`, because helm deletes no objects of hooks.

A service that runs writes configurations, gates, quotas and statuses again, so its parts are
stopped first. Deployments are scaled to 0; the pods of a DaemonSet are asked to nodes with a label
that no node has. The labels of a part prove nothing in the namespace of a tenant, so parts are
stopped and awaited in the namespaces of the installation only.
"""

from collections.abc import Collection
from typing import Final, TypeVar

import msgspec

from gpuledger.removal.removal_scope import RemovalScope
from gpuledger.removal.removal_tasks import RemovalTask, RemovedThing, deleting, merging
from ledger.kube.api.api_resources import DAEMON_SETS, DEPLOYMENTS, PODS, Resource
from ledger.kube.api.cluster_errors import Malformed
from ledger.kube.api.objects import ListMeta, ObjectMeta, PodList
from ledger.kube.client.api_client import ApiClient

STOPPED: Final = "gpuledger.io/uninstalled"
"""The label in the node selector of stopped agents."""

_NAME: Final = "app.kubernetes.io/name"
_COMPONENT: Final = "app.kubernetes.io/component"
_SERVICE: Final = "service"
_DEPLOYED: Final = (_SERVICE, "scheduler")
_AGENTS: Final = ("agent",)
_CHECK: Final = "check"

Form = TypeVar("Form")


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_selector: dict[str, str] | None = None


class _Template(msgspec.Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _PartSpec(msgspec.Struct, frozen=True):
    replicas: int = 1
    template: _Template = _Template()


class _Part(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _PartSpec = _PartSpec()


class _Parts(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[_Part] | None = None


class FoundParts(msgspec.Struct, frozen=True):
    """The running parts of an installation.

    `elsewhere` are objects of other namespaces with the labels of a part. `has_service` is whether
    the service is there, running or stopped.
    """

    tasks: list[RemovalTask] = []
    elsewhere: list[RemovedThing] = []
    has_service: bool = False


class PartPod(msgspec.Struct, frozen=True):
    """A pod of a part that has not ended; `is_ending` after its deletion was asked for."""

    namespace: str
    name: str
    node: str
    is_ending: bool


async def find_parts(client: ApiClient, scope: RemovalScope) -> FoundParts:
    """Return the parts of the installation, and what looks like them. Raises ClusterError."""
    tasks: list[RemovalTask] = []
    elsewhere: list[RemovedThing] = []
    has_service = False
    for resource, home, components in (
        (DEPLOYMENTS, scope.namespace, _DEPLOYED),
        (DAEMON_SETS, scope.agents, _AGENTS),
    ):
        selector = _selector(scope, components)
        for part in (await _listed(client, resource.collection(), selector, _Parts)).items or ():
            if part.metadata.namespace != home:
                elsewhere.append(_elsewhere(part.metadata, resource))
                continue
            has_service |= (part.metadata.labels or {}).get(_COMPONENT) == _SERVICE
            if not _is_stopped(part, resource):
                tasks.append(_stopping(client, part, resource))
    return FoundParts(tasks, elsewhere, has_service)


def _elsewhere(meta: ObjectMeta, resource: Resource) -> RemovedThing:
    option = "--namespace" if resource is DEPLOYMENTS else "--agent-namespace"
    return RemovedThing(
        resource.kind.lower(),
        meta.full_name(),
        "keep it",
        f"it has our labels in another namespace; if it is ours, give {option} {meta.namespace}",
    )


async def find_running(client: ApiClient, scope: RemovalScope) -> list[PartPod]:
    """Return the pods of the parts that have not ended, also those that are being deleted.

    A pod that is being deleted still registers webhooks for its grace period. Raises ClusterError.
    """
    running: list[PartPod] = []
    for namespace, components in ((scope.namespace, _DEPLOYED), (scope.agents, _AGENTS)):
        path, selector = PODS.collection(namespace), _selector(scope, components)
        for pod in (await _listed(client, path, selector, PodList)).items or ():
            meta = pod.metadata
            if not pod.status.has_ended():
                is_ending = meta.deletion_timestamp is not None
                running.append(PartPod(meta.namespace, meta.name, pod.spec.node_name, is_ending))
    return running


async def find_check_pods(client: ApiClient, scope: RemovalScope) -> list[RemovalTask]:
    """Return the pod of `helm test`. Raises ClusterError.

    Other pods of its component belong to a Job, and are deleted with it.
    """
    path, name = PODS.collection(scope.namespace), f"{scope.name}-{_CHECK}"
    listed = (await _listed(client, path, _selector(scope, (_CHECK,)), PodList)).items or ()
    named = (pod.metadata for pod in listed if pod.metadata.name == name)
    metadata = (meta for meta in named if meta.deletion_timestamp is None)
    return [
        RemovalTask(
            RemovedThing("pod", meta.full_name(), "delete"),
            deleting(client, PODS.object(meta.namespace, meta.name), meta.uid),
        )
        for meta in metadata
    ]


def _selector(scope: RemovalScope, components: Collection[str]) -> str:
    return f"{_NAME}={scope.name},{_COMPONENT} in ({','.join(components)})"


async def _listed(client: ApiClient, path: str, selector: str, form: type[Form]) -> Form:
    body = await client.get(path, {"labelSelector": selector})
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"{path}: {error}") from error


def _is_stopped(part: _Part, resource: Resource) -> bool:
    if resource is DEPLOYMENTS:
        return part.spec.replicas == 0
    return STOPPED in (part.spec.template.spec.node_selector or {})


def _stopping(client: ApiClient, part: _Part, resource: Resource) -> RemovalTask:
    meta = part.metadata
    selector = {"template": {"spec": {"nodeSelector": {STOPPED: "true"}}}}
    change = {"replicas": 0} if resource is DEPLOYMENTS else selector
    path = resource.object(meta.namespace, meta.name)
    thing = RemovedThing(resource.kind.lower(), meta.full_name(), "stop")
    return RemovalTask(thing, merging(client, path, {"spec": change}))
