"""Requests to the device plugin: each one soon gets a response or a status.

The kubelet is trusted, but other processes of the node may reach the plugin's socket. Inputs are
the bytes of a request; the first byte selects the call.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Never

import grpc
import structlog
from google.protobuf.message import DecodeError
from mutating import Mutator

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

from support.harness.device_plugin import FakePlacements, card, container, settings_in, share

from vgpu_native.plugin.advertised_devices import AdvertisedDevices
from vgpu_native.plugin.allocation.allocate_handler import AllocateHandler
from vgpu_native.plugin.allocation.allocation_store import AllocationStore
from vgpu_native.plugin.allocation.pre_start_handler import PreStartHandler
from vgpu_native.plugin.kubelet.generated import deviceplugin_pb2 as api
from vgpu_native.plugin.kubelet.kubelet_state import KubeletState
from vgpu_native.plugin.server.plugin_service import DevicePluginService

CALLS: Final[tuple[tuple[str, Any], ...]] = (
    ("Allocate", api.AllocateRequest),
    ("GetPreferredAllocation", api.PreferredAllocationRequest),
    ("PreStartContainer", api.PreStartContainerRequest),
)
SECONDS_MAX: Final = 60.0
"""Bound of waits that never end; processor time has its own bound, because machines are busy."""
WAIT_SECONDS: Final = 0.01


class Ended(Exception):
    """A call was ended with a status."""


class Context:
    """The part of a call's context that the service uses."""

    async def abort(self, code: grpc.StatusCode, details: str) -> Never:
        """End the call, and check that its status has a message."""
        assert code is not grpc.StatusCode.OK, details
        assert details, code
        raise Ended(details)


def targets(seed: int) -> tuple[Mutator, Callable[[bytes], None]]:
    """Return the source of inputs, and the function that reads an input."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    folder = tempfile.TemporaryDirectory()
    servicer, ids = _plugin(Path(folder.name))
    runner = asyncio.Runner()

    def read_input(data: bytes) -> None:
        name, kind = CALLS[data[0] % len(CALLS) if data else 0]
        try:
            request = kind.FromString(data[1:])
        except DecodeError:
            return
        runner.run(_call(servicer, name, request))
        assert Path(folder.name).exists(), "a plugin keeps to its own directory"

    return Mutator(seed, _corpus(ids)), read_input


async def _call(servicer: DevicePluginService, name: str, request: Any) -> None:
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await getattr(servicer, name)(request, Context())
    except Ended:
        pass


def _plugin(folder: Path) -> tuple[DevicePluginService, list[str]]:
    """Return a plugin's service with two placed containers, and the ids of its devices."""
    waits = {"allocate_seconds": WAIT_SECONDS, "verify_seconds": WAIT_SECONDS}
    settings = settings_in(folder, look_seconds=WAIT_SECONDS, **waits)
    settings.state_dir.mkdir(parents=True)
    placed = FakePlacements(container("one", share(0)), container("two", share(0), share(1)))
    devices = AdvertisedDevices()
    devices.replace([card(0), card(1)])
    allocations = AllocationStore(settings.state_dir / "allocations")
    kubelet = KubeletState(settings, placed)
    servicer = DevicePluginService(
        devices,
        allocate=AllocateHandler(
            settings,
            placed,
            allocations=allocations,
            kubelet=kubelet,
            make_room=lambda: asyncio.sleep(0),
        ),
        pre_start=PreStartHandler(settings, placed, allocations=allocations, kubelet=kubelet),
    )
    return servicer, [device.ID for device in devices.listed().devices]


def _corpus(ids: list[str]) -> list[bytes]:
    wanted = api.ContainerAllocateRequest(devices_ids=ids[:2])
    preferred = api.ContainerPreferredAllocationRequest(
        available_deviceIDs=ids, must_include_deviceIDs=ids[:1], allocation_size=2
    )
    requests = (
        (0, api.AllocateRequest(container_requests=[wanted])),
        (0, api.AllocateRequest(container_requests=[wanted, wanted])),
        (1, api.PreferredAllocationRequest(container_requests=[preferred])),
        (2, api.PreStartContainerRequest(devices_ids=ids[:1])),
    )
    return [bytes([call]) + request.SerializeToString() for call, request in requests]


if __name__ == "__main__":
    from looping import main

    sys.exit(main(targets))
