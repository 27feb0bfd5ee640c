"""Replica addresses: the pods behind the Service that the API server calls, of any role."""

from typing import Final

import msgspec

from gpuledger.check.api_questions import ApiQuestions
from gpuledger.check.install_findings import Unasked
from gpuledger.check.registered_webhooks import CalledService
from gpuledger.check.replica_reports import ReplicaAddress
from ledger.kube.api.api_resources import PODS, Resource
from ledger.kube.api.objects import ObjectMeta
from ledger.kube.client import pod_role
from ledger.runtime import addresses

SERVICES: Final = Resource("", "v1", "services", "Service")

_PORT: Final = "https"
_PORT_NUMBER: Final = 8443
"""The port of a container that names none."""


class _ServiceSpec(msgspec.Struct, frozen=True):
    selector: dict[str, str] | None = None


class _Service(msgspec.Struct, frozen=True):
    spec: _ServiceSpec = _ServiceSpec()


class _Port(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    container_port: int = 0


class _Container(msgspec.Struct, frozen=True):
    ports: list[_Port] | None = None


class _PodSpec(msgspec.Struct, frozen=True):
    containers: list[_Container] | None = None


class _PodStatus(msgspec.Struct, frozen=True, rename={"address": "podIP"}):
    address: str = ""
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _Pods(msgspec.Struct, frozen=True):
    items: list[_Pod] | None = None


async def addresses_of(
    questions: ApiQuestions, service: CalledService
) -> list[ReplicaAddress] | Unasked:
    """Return the addresses of the pods that a Service selects, also of those without the role."""
    answer = await questions.read(SERVICES.object(service.namespace, service.name), _Service)
    if isinstance(answer, Unasked):
        return answer
    if answer is None or not answer.spec.selector:
        return []
    selector = ",".join(
        f"{key}={value}" for key, value in answer.spec.selector.items() if key != pod_role.LABEL
    )
    path = PODS.collection(service.namespace)
    listed = await questions.read(path, _Pods, {"labelSelector": selector})
    if listed is None or isinstance(listed, Unasked):
        return listed or []
    named = f"{service.name}.{service.namespace}.svc"
    return [
        ReplicaAddress(pod.metadata.name, _url(pod), named)
        for pod in listed.items or ()
        if pod.status.address and pod.status.phase == "Running"
    ]


def _url(pod: _Pod) -> str:
    return f"https://{addresses.joined(pod.status.address, _port(pod))}"


def _port(pod: _Pod) -> int:
    ports = (port for container in pod.spec.containers or () for port in container.ports or ())
    return next((port.container_port for port in ports if port.name == _PORT), _PORT_NUMBER)
