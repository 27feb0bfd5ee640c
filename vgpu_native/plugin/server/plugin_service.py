"""Plugin service: the gRPC calls of the kubelet; checks requests and returns errors as statuses."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Never, Protocol

import grpc
import structlog

from vgpu_native.plugin.advertised_devices import AdvertisedDevices
from vgpu_native.plugin.allocation.allocate_handler import AllocateHandler
from vgpu_native.plugin.allocation.pre_start_handler import PreStartHandler
from vgpu_native.plugin.allocation.preferred_devices import prefer
from vgpu_native.plugin.grpc_status import RejectedCall, bad_request, shown_ids
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2_grpc import DevicePluginServicer

OPTIONS: Final = DevicePluginOptions(
    pre_start_required=True, get_preferred_allocation_available=True
)

DEVICES_MAX: Final = 16
"""Maximum number of devices of one container, as on a limits page."""

_log: Final = structlog.get_logger("vgpu_native.plugin")


class Context(Protocol):
    """The part of a call's context that the service uses."""

    async def abort(self, code: grpc.StatusCode, details: str) -> Never:
        """End the call with a status."""


class DevicePluginService(DevicePluginServicer):
    """Serves the kubelet's calls."""

    def __init__(
        self, devices: AdvertisedDevices, *, allocate: AllocateHandler, pre_start: PreStartHandler
    ) -> None:
        """Serve these devices by these handlers."""
        self._devices = devices
        self._allocate = allocate
        self._pre_start = pre_start
        self.listeners = 0
        self._closing = False

    def close(self) -> None:
        """End the ListAndWatch calls, which have no end; other calls may complete."""
        self._closing = True
        self._devices.changes.increment()

    async def GetDevicePluginOptions(  # noqa: N802
        self, _request: Empty, _context: Context
    ) -> DevicePluginOptions:
        """Return that the plugin needs PreStartContainer and has preferred devices."""
        return OPTIONS

    async def ListAndWatch(  # noqa: N802
        self, _request: Empty, _context: Context
    ) -> AsyncIterator[ListAndWatchResponse]:
        """Send all devices now and after each change. Quick changes are merged."""
        self.listeners += 1
        try:
            while not self._closing:
                version = self._devices.changes.version
                yield self._devices.listed()
                await self._devices.changes.wait(version)
        finally:
            self.listeners -= 1

    async def GetPreferredAllocation(  # noqa: N802
        self, request: PreferredAllocationRequest, context: Context
    ) -> PreferredAllocationResponse:
        """Return the devices on the cards that the likely container was placed on."""
        try:
            with _explained("GetPreferredAllocation"):
                answers = [
                    await self._preferred(container_request, f"container_requests[{index}]")
                    for index, container_request in enumerate(request.container_requests)
                ]
                return PreferredAllocationResponse(container_responses=answers)
        except RejectedCall as refused:
            await context.abort(refused.code, str(refused))

    async def Allocate(  # noqa: N802
        self, request: AllocateRequest, context: Context
    ) -> AllocateResponse:
        """Return the responses of the containers, computed one after the other."""
        try:
            with _explained("Allocate"):
                for index, container_request in enumerate(request.container_requests):
                    self._check(
                        container_request.devices_ids, f"container_requests[{index}].devices_ids"
                    )
                answers = [
                    await self._allocate.allocate(list(container_request.devices_ids))
                    for container_request in request.container_requests
                ]
                return AllocateResponse(container_responses=answers)
        except RejectedCall as refused:
            await context.abort(refused.code, str(refused))

    async def PreStartContainer(  # noqa: N802
        self, request: PreStartContainerRequest, context: Context
    ) -> PreStartContainerResponse:
        """Return if a container's devices match its placement, so that it can start."""
        try:
            with _explained("PreStartContainer"):
                # Accept ids of a card that is gone: its container is still assigned, and the
                # kubelet checks the health of the ids itself.
                _check_ids(request.devices_ids, "devices_ids")
                await self._pre_start.verify(list(request.devices_ids))
                return PreStartContainerResponse()
        except RejectedCall as refused:
            await context.abort(refused.code, str(refused))

    async def _preferred(
        self, request: ContainerPreferredAllocationRequest, where: str
    ) -> ContainerPreferredAllocationResponse:
        size, available = request.allocation_size, request.available_deviceIDs
        required = request.must_include_deviceIDs
        if not len(required) <= size <= len(set(available) | set(required)):
            raise bad_request(
                f"{where}.allocation_size {size}: {len(available)} devices are available and"
                f" {len(required)} must be included; request a number between"
            )
        cards = await self._allocate.expected(size)
        return ContainerPreferredAllocationResponse(
            deviceIDs=prefer(available, required, size, cards)
        )

    def _check(self, ids: Sequence[str], field: str) -> None:
        """Raise RejectedCall for invalid ids and for ids that the plugin does not advertise."""
        _check_ids(ids, field)
        if unknown := self._devices.unknown(ids):
            raise bad_request(
                f"{field} {shown_ids(unknown)}: not advertised by this plugin; take ids of its"
                " last ListAndWatch"
            )


def _check_ids(ids: Sequence[str], field: str) -> None:
    if not 1 <= len(ids) <= DEVICES_MAX:
        raise bad_request(f"{field} has {len(ids)} ids; a container can have 1 to {DEVICES_MAX}")
    if len(set(ids)) != len(ids):
        raise bad_request(f"{field} {shown_ids(ids)}: an id is named twice; name each once")


@contextmanager
def _explained(call: str) -> Iterator[None]:
    """Log rejected calls, and raise errors of the file system as RejectedCall."""
    try:
        yield
    except RejectedCall as refused:
        _log.warning("kubelet_refused", call=call, code=refused.code.name, reason=str(refused))
        raise
    except OSError as error:
        _log.error("kubelet_failed", call=call, error=str(error))
        raise RejectedCall(grpc.StatusCode.INTERNAL, f"{call}: {error}") from error
