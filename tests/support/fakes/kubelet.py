"""Kubelet: the calls of a kubelet to device plugins, with gRPC on real unix sockets.

It does as kubelet 1.36 does, by the contract of `support.kubelets.kubelet_contract`, which both
pass. It admits pods one after the other and their containers in order, and reuses the devices of
init containers. It stores an answer in memory and in the checkpoint before it allocates the next
container. It calls `PreStartContainer` before every start and never asks for an answer again. Its
checkpoint survives `restart`, and has the entries of an ended pod until the next one is admitted.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from vgpu_native.plugin.kubelet.generated import deviceplugin_pb2 as api
from vgpu_native.plugin.kubelet.generated import podresources_pb2 as pods_api
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from vgpu_native.plugin.kubelet.generated.podresources_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)

RESOURCE = "nvidia.com/gpu"
SECONDS = 20.0


class Asked:
    """A container of a pod as its spec has it: a name, how many devices, and when it runs.

    A sidecar is an init container that goes on running, so that no other container has its devices.
    """

    def __init__(self, name: str, count: int, *, init: bool = False, sidecar: bool = False) -> None:
        self.name, self.count, self.sidecar = name, count, sidecar
        self.init = init or sidecar


class Rejected(Exception):
    """The kubelet rejects the pod: UnexpectedAdmissionError."""


class NotStarted(Exception):
    """The container waits: CreateContainerConfigError."""


class Kubelet(RegistrationServicer, PodResourcesListerServicer):
    """One kubelet with a directory of device plugins and a pod-resources socket."""

    def __init__(self, directory: Path) -> None:
        self.plugins = directory / "device-plugins"
        self.pod_resources = directory / "pod-resources" / "kubelet.sock"
        self.registrations: list[api.RegisterRequest] = []
        self.lists: list[api.ListAndWatchResponse] = []
        self.listed = asyncio.Event()
        self.registered = asyncio.Event()
        self.answers: dict[tuple[str, str], tuple[frozenset[str], api.ContainerAllocateResponse]]
        self.answers = {}
        self.names: dict[str, tuple[str, str]] = {}
        self.asked: dict[str, Sequence[Asked]] = {}
        self.resource = RESOURCE
        self.health: dict[str, str] = {}
        self.preferred: list[list[str]] = []
        self._writes_checkpoint = True
        self.follows_preferences = True
        self.speaks_of_pods = True
        self.removes_sockets = True
        self.lies: dict[str, tuple[str, str]] = {}
        self._servers: list[Any] = []
        self._watches: list[asyncio.Task[None]] = []
        self._channel: Any = None
        self._channels: list[Any] = []
        self.options: api.DevicePluginOptions | None = None

    @property
    def writes_checkpoint(self) -> bool:
        """Whether there is a checkpoint; setting it to False removes the file."""
        return self._writes_checkpoint

    @writes_checkpoint.setter
    def writes_checkpoint(self, wanted: bool) -> None:
        self._writes_checkpoint = wanted
        if not wanted:
            self.checkpoint.unlink(missing_ok=True)

    @property
    def checkpoint(self) -> Path:
        """Return the path of the checkpoint."""
        return self.plugins / "kubelet_internal_checkpoint"

    async def start(self) -> None:
        """Begin as a kubelet does: without sockets of others, with the checkpoint's content."""
        for path in (self.plugins, self.pod_resources.parent):
            path.mkdir(parents=True, exist_ok=True)
        for path in self.plugins.iterdir():
            if path.is_socket() and (self.removes_sockets or path.name == "kubelet.sock"):
                path.unlink()
        self.pod_resources.unlink(missing_ok=True)
        for path, add in (
            (self.plugins / "kubelet.sock", add_RegistrationServicer_to_server),
            (self.pod_resources, add_PodResourcesListerServicer_to_server),
        ):
            server = grpc.aio.server()
            add(self, server)
            server.add_insecure_port(f"unix:{path}")
            await server.start()
            self._servers.append(server)

    async def stop(self) -> None:
        """End; what is in the checkpoint remains."""
        await self.forget_plugin()
        for server in self._servers:
            await server.stop(0)
        self._servers.clear()

    async def restart(self) -> None:
        """End and begin again."""
        await self.stop()
        self.health.clear()
        # Until the plugin registers again, containers start without PreStartContainer.
        self.options = None
        self.registrations.clear()
        self.lists.clear()
        await self.start()

    async def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Take a plugin, as the newest of its resource."""
        if request.version != "v1beta1" or "/" not in request.resource_name:
            await context.abort(grpc.StatusCode.UNKNOWN, "not supported")
        # An earlier plugin keeps its stream, as long as it lives.
        self.resource = request.resource_name
        self._channel = grpc.aio.insecure_channel(f"unix:{self.plugins / request.endpoint}")
        self._channels.append(self._channel)
        self.options = await self.stub.GetDevicePluginOptions(api.Empty(), timeout=SECONDS)
        self._watches.append(asyncio.create_task(self._listen(self.stub)))
        self.registrations.append(request)
        self.registered.set()
        return api.Empty()

    async def List(self, _request: Any, context: Any) -> Any:  # noqa: N802
        """List all containers with their devices; init containers that end are left out."""
        if not self.speaks_of_pods:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        return pods_api.ListPodResourcesResponse(
            pod_resources=[self._pod_resources(uid) for uid in self.names]
        )

    def _pod_resources(self, uid: str) -> pods_api.PodResources:
        namespace, name = self.lies.get(uid, self.names[uid])
        containers = []
        for asked in self.asked.get(uid, ()):
            ids, _ = self.answers.get((uid, asked.name), (frozenset(), None))
            # An entry for each device, in any order.
            devices = [
                pods_api.ContainerDevices(resource_name=self.resource, device_ids=[device])
                for device in sorted(ids)
            ]
            if not asked.init or asked.sidecar:
                containers.append(pods_api.ContainerResources(name=asked.name, devices=devices))
        return pods_api.PodResources(namespace=namespace, name=name, containers=containers)

    @property
    def stub(self) -> Any:
        """Return the stub for the plugin that registered last."""
        return DevicePluginStub(self._channel)

    async def admit(self, namespace: str, pod: str, uid: str, asked: Sequence[Asked]) -> None:
        """Allocate the containers of a pod. Raises Rejected, and then the pod has nothing."""
        self.names[uid] = (namespace, pod)
        self.asked[uid] = sorted(asked, key=lambda container: not container.init)
        reusable: set[str] = set()
        for container in self.asked[uid]:
            if not container.count:
                continue
            try:
                ids = await self._choose(container.count, reusable)
                answer = await self.stub.Allocate(
                    api.AllocateRequest(
                        container_requests=[api.ContainerAllocateRequest(devices_ids=ids)]
                    ),
                    timeout=SECONDS,
                )
            except Rejected:
                self.end(uid)
                raise
            except grpc.aio.AioRpcError as error:
                self.end(uid)
                raise Rejected(f"{error.code().name}: {error.details()}") from None
            self.answers[uid, container.name] = (frozenset(ids), answer.container_responses[0])
            if container.init and not container.sidecar:
                reusable |= set(ids)
            else:
                reusable -= set(ids)
            self.write_checkpoint()

    async def start_container(self, uid: str, name: str) -> api.ContainerAllocateResponse:
        """Start a container as it was answered. Raises NotStarted."""
        ids, answer = self.answers[uid, name]
        if self.options is not None and self.options.pre_start_required:
            try:
                await self.stub.PreStartContainer(
                    api.PreStartContainerRequest(devices_ids=sorted(ids, reverse=True)), timeout=30
                )
            except grpc.aio.AioRpcError as error:
                raise NotStarted(f"{error.code().name}: {error.details()}") from None
        return answer

    def end(self, uid: str) -> None:
        """Forget a pod that has ended."""
        for key in [key for key in self.answers if key[0] == uid]:
            del self.answers[key]
        self.names.pop(uid, None)
        self.asked.pop(uid, None)

    def write_checkpoint(self) -> None:
        """Write the checkpoint as the real kubelet does."""
        if not self.writes_checkpoint:
            return
        entries = [
            {
                "PodUID": uid,
                "ContainerName": name,
                "ResourceName": self.resource,
                "DeviceIDs": {"-1": sorted(ids)},
                "AllocResp": base64.b64encode(answer.SerializeToString()).decode(),
            }
            for (uid, name), (ids, answer) in self.answers.items()
        ]
        healthy = [device for device in self.health if self.health[device] == "Healthy"]
        data: dict[str, Any] = {
            "PodDeviceEntries": entries or None,
            "RegisteredDevices": {self.resource: healthy},
        }
        self.checkpoint.write_text(json.dumps({"Data": data, "Checksum": 7}))

    async def wait_listed(self, count: int = 1) -> None:
        """Return when so many lists have come since the last start."""
        async with asyncio.timeout(SECONDS):
            while len(self.lists) < count:
                self.listed.clear()
                await self.listed.wait()

    async def wait_registered(self, count: int) -> None:
        """Return when there were so many registrations since the last start."""
        async with asyncio.timeout(SECONDS):
            while len(self.registrations) < count:
                self.registered.clear()
                await self.registered.wait()

    async def _choose(self, count: int, reusable: set[str]) -> list[str]:
        """Choose devices as the real one does: those to be reused, the preferred ones, any."""
        used = {device for ids, _ in self.answers.values() for device in ids}
        chosen = sorted(reusable)[:count]
        free = sorted(
            device
            for device, health in self.health.items()
            if health == "Healthy" and device not in used
        )
        if len(chosen) < count <= len(chosen) + len(free):
            request = api.ContainerPreferredAllocationRequest(
                available_deviceIDs=[*free, *chosen],
                must_include_deviceIDs=chosen,
                allocation_size=count,
            )
            answer = await self.stub.GetPreferredAllocation(
                api.PreferredAllocationRequest(container_requests=[request]), timeout=SECONDS
            )
            self.preferred.append(list(answer.container_responses[0].deviceIDs))
            wanted = self.preferred[-1] if self.follows_preferences else []
            rest = [device for device in wanted if device not in chosen]
            free = rest + [device for device in reversed(free) if device not in rest]
        chosen += free[: count - len(chosen)]
        if len(chosen) < count:
            raise Rejected(f"{count} devices wanted, {len(chosen)} free")
        return chosen

    async def _listen(self, stub: Any) -> None:
        """Read lists until the plugin ends. Then no plugin is connected, also no later one."""
        try:
            async for answer in stub.ListAndWatch(api.Empty()):
                self.lists.append(answer)
                self.health = {device.ID: device.health for device in answer.devices}
                self.write_checkpoint()
                self.listed.set()
        except grpc.aio.AioRpcError:
            pass
        self.health = dict.fromkeys(self.health, "Unhealthy")
        self.write_checkpoint()
        if self._channel is not None:
            await self._channel.close()

    async def forget_plugin(self) -> None:
        """Hang up, as one that has lost its memory of the plugin."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        self._watches.clear()
        for channel in self._channels:
            await channel.close()
        self._channels.clear()
        self._channel = None


@asynccontextmanager
async def kubelet_in(directory: Path) -> AsyncIterator[Kubelet]:
    """Run a kubelet for a block."""
    kubelet = Kubelet(directory)
    async with started(kubelet):
        yield kubelet


@asynccontextmanager
async def started(kubelet: Kubelet) -> AsyncIterator[None]:
    """Run a kubelet that a test has made."""
    await kubelet.start()
    try:
        yield
    finally:
        await kubelet.stop()
