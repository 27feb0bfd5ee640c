"""Pod resources: reads the devices of containers from the kubelet's pod-resources API."""

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
"""Maximum size of a response, as for the kubelet's own clients."""


class KubeletSilent(Exception):
    """The kubelet does not respond; the message names the socket and the cause."""


class DeviceHolder(msgspec.Struct, frozen=True):
    """A sidecar or app container, and its devices."""

    namespace: str
    pod: str
    container: str
    ids: frozenset[str]


async def holders(socket: Path, resource: str) -> tuple[DeviceHolder, ...]:
    """Return the containers with devices of a resource. Raises KubeletSilent."""
    options = [("grpc.max_receive_message_length", BYTES_MAX)]
    try:
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
            stub = PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
            answer = await stub.List(ListPodResourcesRequest(), timeout=LIST_SECONDS)
    except (TimeoutError, grpc.aio.AioRpcError) as error:
        cause = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no response"
        raise KubeletSilent(f"pod-resources API of the kubelet at {socket}: {cause}") from error
    return _read(answer, resource)


def _read(answer: ListPodResourcesResponse, resource: str) -> tuple[DeviceHolder, ...]:
    device_holders = []
    for pod in answer.pod_resources:
        for container in pod.containers:
            ids = {
                device
                for devices in container.devices
                if devices.resource_name == resource
                for device in devices.device_ids
            }
            if ids:
                device_holders.append(
                    DeviceHolder(pod.namespace, pod.name, container.name, frozenset(ids))
                )
    return tuple(device_holders)
