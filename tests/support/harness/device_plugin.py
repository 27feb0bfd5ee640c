"""Device plugin: the real plugin beside a fake kubelet, with placements made by a test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from support.fakes.kubelet import SECONDS, Asked, Kubelet, kubelet_in

from ledger.core.model.cards import Card, Share
from vgpu_native.plugin.allocation import garbage_collection
from vgpu_native.plugin.allocation.allocation_store import Allocation
from vgpu_native.plugin.kubelet.generated import deviceplugin_pb2 as api
from vgpu_native.plugin.kubelet.kubelet_checkpoint import MARK
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.plugin.server.plugin_server import DevicePluginServer
from vgpu_native.shared import limits_page
from vgpu_native.shared.change_counter import ChangeCounter

CARDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in range(4))

ONE = (Asked("main", 1),)
"""A pod of one container that wants one device."""


def card(index: int, **told: Any) -> Card:
    """Return a card of four slots."""
    return Card(CARDS[index], index, "NVIDIA H200", 140_000, 100, 4, **told)


def share(index: int, memory: int = 1_000, cores: int = 30, **told: Any) -> Share:
    """Return a share of the card of an index."""
    return Share(CARDS[index], memory, cores, **told)


def container(pod: str, *shares: Share, name: str = "main", order: int = 0, time: int = 0) -> Any:
    """Return a container of a pod in namespace `team`, whose uid is the pod's name with `-uid`."""
    return PlacedContainer("team", pod, f"{pod}-uid", name, order, shares, time)


class FakePlacements:
    """Placements that a test changes; with a `trouble`, the ledger is out of reach."""

    def __init__(self, *containers: PlacedContainer) -> None:
        self._containers = list(containers)
        self._changes = ChangeCounter()
        self.trouble = ""

    @property
    def version(self) -> int:
        return self._changes.version

    def containers(self) -> Sequence[PlacedContainer]:
        return tuple(self._containers)

    async def wait(self, version: int) -> None:
        await self._changes.wait(version)

    async def caught_up(self) -> None:
        while self.trouble:  # noqa: ASYNC110 - a test sends no signal
            await asyncio.sleep(0.01)

    def replace(self, *containers: PlacedContainer) -> None:
        """Let these be all."""
        self._containers = list(containers)
        self._changes.increment()

    def add(self, *containers: PlacedContainer) -> None:
        """Place these, too."""
        self.replace(*self._containers, *containers)


class Node:
    """A kubelet, a plugin and what was placed."""

    def __init__(
        self,
        kubelet: Kubelet,
        plugin: DevicePluginServer,
        settings: PluginSettings,
        placed: FakePlacements,
    ):
        self.kubelet, self.plugin, self.settings, self.placed = kubelet, plugin, settings, placed

    def allocation(self, uid: str, name: str = "main") -> Allocation:
        """Return the allocation that a container was answered."""
        _, answer = self.kubelet.answers[uid, name]
        allocated = self.plugin.allocations.get(answer.annotations[MARK])
        assert allocated is not None
        return allocated

    def limits(self, uid: str, name: str = "main") -> dict[str, int]:
        """Return the limits page of a container: MiB by card."""
        page = limits_page.read(self.plugin.allocations.page(self.allocation(uid, name)))
        return {device.uuid: device.memory // 1024**2 for device in page.devices}

    async def run(self, pod: str) -> None:
        """Admit a pod of one container that wants one device, and start it."""
        await self.kubelet.admit("team", pod, f"{pod}-uid", ONE)
        await self.kubelet.start_container(f"{pod}-uid", "main")

    async def allocate(self, *ids: str) -> api.ContainerAllocateResponse:
        """Have the plugin asked for devices of a container that the kubelet does not list."""
        request = api.ContainerAllocateRequest(devices_ids=ids)
        asked = api.AllocateRequest(container_requests=[request])
        answer = await self.kubelet.stub.Allocate(asked, timeout=10)
        response: api.ContainerAllocateResponse = answer.container_responses[0]
        return response

    async def collect(self) -> int:
        """Remove unused records; return of how many containers they were."""
        plugin = self.plugin
        return await garbage_collection.collect(plugin.allocations, plugin._kubelet, self.settings)


def settings_in(directory: Path, **told: Any) -> PluginSettings:
    """Return settings of a plugin that lives in a directory, with quick looks and short waits."""
    library = directory / "libvgpu.so"
    library.write_bytes(b"a library")
    kept: dict[str, Any] = {
        "plugins_dir": directory / "kubelet" / "device-plugins",
        "pod_resources": directory / "kubelet" / "pod-resources" / "kubelet.sock",
        "state_dir": directory / "state",
        "cdi_dir": directory / "cdi",
        "library": library,
        "look_seconds": 0.05,
        "allocate_seconds": 1.0,
        "verify_seconds": 1.0,
    }
    return PluginSettings(**{**kept, **told})


@asynccontextmanager
async def running(plugin: DevicePluginServer) -> AsyncIterator[None]:
    """Run a plugin for a block."""
    task = asyncio.create_task(plugin.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def node_in(
    directory: Path, *containers: PlacedContainer, **told: Any
) -> AsyncIterator[Node]:
    """Run a kubelet and a plugin with two cards that are registered."""
    settings, placed = settings_in(directory, **told), FakePlacements(*containers)
    async with (
        kubelet_in(directory / "kubelet") as kubelet,
        node_with_plugin(kubelet, settings, placed) as node,
    ):
        yield node


@asynccontextmanager
async def node_with_plugin(
    kubelet: Kubelet, settings: PluginSettings, placed: FakePlacements
) -> AsyncIterator[Node]:
    """Run a plugin with two cards, the first one or one after another, beside a kubelet."""
    known = len(kubelet.lists)
    plugin = DevicePluginServer(settings, placed)
    plugin.devices.replace([card(0), card(1)])
    async with running(plugin):
        await kubelet.wait_listed(known + 1)
        # The kubelet reads the list before it answers the plugin's registration.
        async with asyncio.timeout(SECONDS):
            while not plugin.registered:  # noqa: ASYNC110 - the plugin sends no signal
                await asyncio.sleep(0.005)
        yield Node(kubelet, plugin, settings, placed)


def moved(placed: PlacedContainer, *shares: Share) -> PlacedContainer:
    """Return a container with other shares."""
    return msgspec.structs.replace(placed, shares=shares)
