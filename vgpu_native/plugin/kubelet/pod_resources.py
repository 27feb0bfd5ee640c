"""The pod-resources API of the kubelet: which container of which pod has which devices."""

from pathlib import Path
from typing import Final

import grpc
import msgspec

from vgpu_native.plugin.kubelet.generated.podresources_pb2 import (
    ListPodResourcesRequest,
    ListPodResourcesResponse,
)
from vgpu_native.plugin.kubelet.generated.podresources_pb2_grpc import PodResourcesListerStub

LIST_SECONDS: Final = 3.0
"""Deadline of one call."""

BYTES_MAX: Final = 16 * 1024**2
"""Largest answer, as the kubelet's own clients take it."""


class KubeletSilent(Exception):
    """The kubelet does not answer; the text says what was tried."""


class DeviceHolder(msgspec.Struct, frozen=True):
    """A container, sidecar or app, and the devices it has."""

    namespace: str
    pod: str
    container: str
    ids: frozenset[str]


async def holders(socket: Path, resource: str) -> tuple[DeviceHolder, ...]:
    """Return who has devices of a resource. Raises Silent."""
    options = [("grpc.max_receive_message_length", BYTES_MAX)]
    try:
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
            stub = PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
            answer = await stub.List(ListPodResourcesRequest(), timeout=LIST_SECONDS)
    except (TimeoutError, grpc.aio.AioRpcError) as error:
        why = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no answer"
        raise KubeletSilent(f"pod-resources API of the kubelet at {socket}: {why}") from error
    return _read(answer, resource)


def _read(answer: ListPodResourcesResponse, resource: str) -> tuple[DeviceHolder, ...]:
    found = []
    for pod in answer.pod_resources:
        for container in pod.containers:
            ids = {
                one
                for devices in container.devices
                if devices.resource_name == resource
                for one in devices.device_ids
            }
            if ids:
                found.append(DeviceHolder(pod.namespace, pod.name, container.name, frozenset(ids)))
    return tuple(found)
