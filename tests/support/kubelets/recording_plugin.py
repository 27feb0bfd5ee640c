"""A device plugin that records the calls of a kubelet, and answers as a test wants."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from vgpu_native.plugin.kubelet.generated import deviceplugin_pb2 as api
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2_grpc import (
    DevicePluginServicer,
    RegistrationStub,
    add_DevicePluginServicer_to_server,
)

RESOURCE: Final = "example.com/thing"
VARIABLE: Final = "THINGS"
SECONDS: Final = 60.0
STOP_SECONDS: Final = 0.2
"""How long calls may go on after `stop`."""


class KubeletCall(NamedTuple):
    """A call: its name, the devices in it, and the kubelet's checkpoint at that moment."""

    name: str
    ids: tuple[str, ...] = ()
    checkpoint: str = ""


class RecordingPlugin(DevicePluginServicer):
    """A plugin at an endpoint of a kubelet's directory."""

    def __init__(self, directory: Path, endpoint: str, devices: Sequence[str]) -> None:
        """Offer these devices, all of them healthy."""
        self.socket = directory / endpoint
        self.resource = RESOURCE
        self.calls: list[KubeletCall] = []
        self.failures: dict[str, int] = {}
        """How many of the next calls of a name fail."""

        self.fail_after = 0
        """How many calls succeed before the first of them fails."""

        self.devices = dict.fromkeys(devices, "Healthy")
        self.watchers = 0
        self._changed = asyncio.Event()
        self._server: Any = None
        self._closing = False

    def names(self) -> list[str]:
        """Return the names of the calls so far, in order."""
        return [call.name for call in self.calls]

    def of(self, name: str) -> list[KubeletCall]:
        """Return the calls of a name."""
        return [call for call in self.calls if call.name == name]

    async def start(self) -> None:
        """Listen."""
        with suppress(FileNotFoundError):
            self.socket.unlink()
        self._closing = False
        self._server = grpc.aio.server()
        add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        """End, as a plugin that is killed."""
        if self._server is not None:
            self._closing = True
            self._changed.set()
            await self._server.stop(STOP_SECONDS)
            self._server = None

    async def register(self) -> None:
        """Register with the kubelet of the directory. Raises grpc.aio.AioRpcError."""
        kubelet = self.socket.with_name("kubelet.sock")
        options = api.DevicePluginOptions(
            pre_start_required=True, get_preferred_allocation_available=True
        )
        async with grpc.aio.insecure_channel(f"unix:{kubelet}") as channel:
            stub = RegistrationStub(channel)
            request = api.RegisterRequest(
                version="v1beta1",
                endpoint=self.socket.name,
                resource_name=self.resource,
                options=options,
            )
            await stub.Register(request, timeout=SECONDS)

    def turn(self, device: str, health: str) -> None:
        """Change the health of a device."""
        self.devices[device] = health
        self._changed.set()

    async def GetDevicePluginOptions(self, _: Any, context: Any) -> Any:  # noqa: N802
        """Record the call."""
        await self._record("GetDevicePluginOptions", (), context)
        return api.DevicePluginOptions(
            pre_start_required=True, get_preferred_allocation_available=True
        )

    async def ListAndWatch(self, _: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Record the call; list the devices at each change."""
        await self._record("ListAndWatch", (), context)
        self.watchers += 1
        try:
            while not self._closing:
                self._changed.clear()
                yield api.ListAndWatchResponse(
                    devices=[
                        api.Device(ID=name, health=self.devices[name]) for name in self.devices
                    ]
                )
                await self._changed.wait()
        finally:
            self.watchers -= 1

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Record the call; prefer the last ones of those that are available."""
        [asked] = request.container_requests
        await self._record("GetPreferredAllocation", asked.available_deviceIDs, context)
        required = list(asked.must_include_deviceIDs)
        rest = [name for name in sorted(asked.available_deviceIDs)[::-1] if name not in required]
        wanted = [*required, *rest][: asked.allocation_size]
        answer = api.ContainerPreferredAllocationResponse(deviceIDs=wanted)
        return api.PreferredAllocationResponse(container_responses=[answer])

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Record the call; answer with a variable that has the devices."""
        for asked in request.container_requests:
            await self._record("Allocate", asked.devices_ids, context)
        answers = [
            api.ContainerAllocateResponse(envs={VARIABLE: ",".join(sorted(asked.devices_ids))})
            for asked in request.container_requests
        ]
        return api.AllocateResponse(container_responses=answers)

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Record the call."""
        await self._record("PreStartContainer", request.devices_ids, context)
        return api.PreStartContainerResponse()

    async def _record(self, name: str, ids: Sequence[str], context: Any) -> None:
        file = self.socket.with_name("kubelet_internal_checkpoint")
        checkpoint = file.read_text() if file.exists() else ""
        self.calls.append(KubeletCall(name, tuple(ids), checkpoint))
        if self.failures.get(name, 0) > 0 and self.fail_after > 0:
            self.fail_after -= 1
        elif self.failures.get(name, 0) > 0:
            self.failures[name] -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{name} fails by order of the test")


@asynccontextmanager
async def plugin_at(
    directory: Path, endpoint: str, *devices: str
) -> AsyncIterator[RecordingPlugin]:
    """Run a plugin for a block; it does not register by itself."""
    plugin = RecordingPlugin(directory, endpoint, devices)
    await plugin.start()
    try:
        yield plugin
    finally:
        await plugin.stop()
