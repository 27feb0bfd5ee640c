"""Webhook leftovers: the registered configurations of an installation, and of others."""

import msgspec

from gpuledger.check.registered_webhooks import (
    KINDS,
    RegisteredConfiguration,
    RegisteredInstallation,
)
from gpuledger.removal.removal_scope import RemovalScope
from gpuledger.removal.removal_tasks import RemovalTask, RemovedThing, deleting
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import Malformed
from ledger.kube.client.api_client import ApiClient


class FoundWebhooks(msgspec.Struct, frozen=True):
    """The configurations of an installation.

    `elsewhere` are those of its name that call a Service in another namespace. `repaired` is
    whether they call a Service: a running service writes such configurations again.
    """

    tasks: list[RemovalTask] = []
    elsewhere: list[RemovedThing] = []
    others: list[RegisteredInstallation] = []
    repaired: bool = False


class _Configurations(msgspec.Struct, frozen=True):
    items: list[RegisteredConfiguration] | None = None


async def find_webhooks(client: ApiClient, scope: RemovalScope) -> FoundWebhooks:
    """Return the configurations of the installation and of others. Raises ClusterError."""
    tasks: list[RemovalTask] = []
    elsewhere: list[RemovedThing] = []
    others: set[RegisteredInstallation] = set()
    repaired = False
    for kind in KINDS:
        resource = Resource(
            "admissionregistration.k8s.io", "v1", f"{kind}webhookconfigurations", ""
        )
        for configuration in _decoded(await client.get(resource.collection()), resource):
            name, spaces = configuration.metadata.name, _service_namespaces(configuration)
            if name != scope.name:
                others.add(RegisteredInstallation(name, min(spaces, default="")))
            elif spaces - {scope.namespace}:
                elsewhere.append(_elsewhere(kind, name, min(spaces - {scope.namespace})))
            else:
                repaired |= bool(spaces)
                tasks.append(_task(client, kind, resource, configuration))
    return FoundWebhooks(tasks, elsewhere, sorted(others), repaired)


def _decoded(body: bytes, resource: Resource) -> list[RegisteredConfiguration]:
    try:
        listed = msgspec.json.decode(body, type=_Configurations).items or []
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"{resource.collection()}: {error}") from error
    return [configuration for configuration in listed if configuration.is_ours()]


def _service_namespaces(configuration: RegisteredConfiguration) -> set[str]:
    """Return the namespaces of the Services that a configuration calls."""
    services = (entry.client_config.service for entry in configuration.webhooks or ())
    return {service.namespace for service in services if service is not None}


def _elsewhere(kind: str, name: str, namespace: str) -> RemovedThing:
    problem = f"it calls a Service in the namespace {namespace}: give --namespace {namespace}"
    return RemovedThing(f"{kind}webhookconfiguration", name, "delete", problem)


def _task(
    client: ApiClient, kind: str, resource: Resource, configuration: RegisteredConfiguration
) -> RemovalTask:
    meta = configuration.metadata
    thing = RemovedThing(f"{kind}webhookconfiguration", meta.name, "delete")
    return RemovalTask(thing, deleting(client, resource.object("", meta.name), meta.uid))
