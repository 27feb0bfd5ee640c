"""The contract between kubelet and device plugins: one suite for the played and the real kubelet.

Each case takes a kubelet without pods, and a plugin of six devices that has not registered yet.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import grpc
from support.fakes.kubelet import Asked
from support.kubelets.recording_plugin import KubeletCall, RecordingPlugin, plugin_at

from vgpu_native.plugin.kubelet.generated import podresources_pb2 as pods_api
from vgpu_native.plugin.kubelet.generated.podresources_pb2_grpc import PodResourcesListerStub

DEVICES: Final = tuple(f"thing-{number}" for number in range(6))
SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.02
SETTLED_SECONDS: Final = 0.5
OPTIONS, LIST, PREFER = "GetDevicePluginOptions", "ListAndWatch", "GetPreferredAllocation"
ALLOCATE, START = "Allocate", "PreStartContainer"

Seen = TypeVar("Seen")


class PodOutcome(NamedTuple):
    """The outcome of a pod: `Running`, `Rejected` or `Waiting`, and its reason."""

    phase: str
    reason: str = ""


class KubeletUnderTest(Protocol):
    """A kubelet as the suite uses it."""

    plugins: Path
    pod_resources: Path

    async def run(self, name: str, asked: Sequence[Asked]) -> PodOutcome:
        """Give it a pod; return once its containers run, or do not."""
        ...

    async def retry(self, name: str) -> PodOutcome:
        """Return once a pod that waits runs."""
        ...

    async def end(self, name: str) -> None:
        """Delete a pod; return once it is gone."""
        ...

    async def crash(self, name: str) -> None:
        """End the only container of a pod; return once it runs again."""
        ...

    async def restart(self) -> None:
        """Restart the kubelet; return once it takes registrations."""
        ...

    async def allocatable(self) -> int:
        """Return the devices that it offers."""
        ...


Case = Callable[[KubeletUnderTest, RecordingPlugin], Awaitable[None]]


async def registers(kubelet: KubeletUnderTest, plugin: RecordingPlugin) -> None:
    """A registration is followed by one call for options and one stream of lists."""
    await _registered(kubelet, plugin)
    assert plugin.names() == [OPTIONS, LIST]
    await eventually(lambda: _healthy(kubelet, plugin), lambda seen: seen == set(DEVICES))
    plugin.turn(DEVICES[0], "Unhealthy")
    await eventually(kubelet.allocatable, lambda count: count == len(DEVICES) - 1)


async def admits_in_order(kubelet: KubeletUnderTest, plugin: RecordingPlugin) -> None:
    """Init containers lend their devices, sidecars keep them, and each answer is stored first."""
    await _registered(kubelet, plugin)
    asked = (
        Asked("init", 1, init=True),
        Asked("side", 1, sidecar=True),
        Asked("main", 2),
        Asked("other", 1),
        Asked("none", 0),
    )
    assert (await kubelet.run("web", asked)).phase == "Running"
    calls = plugin.calls[2:]
    alloc, starts = [PREFER, ALLOCATE], [START] * 4
    assert [call.name for call in calls] == [*alloc, ALLOCATE, *alloc, *alloc, *starts]
    init, side, main, other = (set(call.ids) for call in plugin.of(ALLOCATE))
    assert init == side == {DEVICES[5]}, "the last is preferred"
    assert main == {DEVICES[4], DEVICES[3]}
    assert other == {DEVICES[2]}
    assert [set(call.ids) for call in plugin.of(START)] == [init, side, main, other]
    given = {"init": init, "side": side, "main": main, "other": other}
    names = list(given)
    for number, call in enumerate(plugin.of(ALLOCATE)):
        before = {name: given[name] for name in names[:number]}
        assert _entries(call, plugin) == before, "the answer before is in the checkpoint"
    assert _entries(plugin.of(START)[0], plugin) == given
    listed = await _listed(kubelet, "web")
    assert {name: {device for (device,) in devices} for name, devices in listed.items()} == {
        "side": side,
        "main": main,
        "other": other,
        "none": set(),
    }, "an entry for each device, and no container that has ended"


async def forgets_late(kubelet: KubeletUnderTest, plugin: RecordingPlugin) -> None:
    """An ended pod is gone from pod resources, and stays in the checkpoint until the next one."""
    await _registered(kubelet, plugin)
    await kubelet.run("web", (Asked("main", 1),))
    await kubelet.end("web")
    assert await _listed(kubelet, "web") == {}
    assert _entries(_now(kubelet), plugin) == {"main": {DEVICES[5]}}
    await kubelet.run("next", (Asked("second", 6),))
    assert _entries(plugin.of(ALLOCATE)[1], plugin) == {"main": {DEVICES[5]}}
    assert set(plugin.of(ALLOCATE)[1].ids) == set(DEVICES), "its device is free"
    assert _entries(_now(kubelet), plugin) == {"second": set(DEVICES)}


async def retries_starts(kubelet: KubeletUnderTest, plugin: RecordingPlugin) -> None:
    """A container whose start is refused waits, and is not allocated again."""
    await _registered(kubelet, plugin)
    plugin.failures[START] = 1
    outcome = await kubelet.run("web", (Asked("main", 2),))
    assert outcome == PodOutcome("Waiting", "CreateContainerConfigError")
    assert (await kubelet.retry("web")).phase == "Running"
    assert plugin.names()[2:] == [PREFER, ALLOCATE, START, START]
    [answered], started = plugin.of(ALLOCATE), plugin.of(START)
    assert all(set(call.ids) == set(answered.ids) for call in started)


async def rejects_for_good(kubelet: KubeletUnderTest, plugin: RecordingPlugin) -> None:
    """A pod whose Allocate is refused is rejected; what it had is still in the checkpoint."""
    await _registered(kubelet, plugin)
    plugin.failures[ALLOCATE], plugin.fail_after = 1, 1
    outcome = await kubelet.run("web", (Asked("main", 1), Asked("other", 1)))
    assert outcome == PodOutcome("Rejected", "UnexpectedAdmissionError")
    assert _entries(_now(kubelet), plugin) == {"main": {DEVICES[5]}}
    assert await _listed(kubelet, "web") == {}
    assert await kubelet.run("many", (Asked("main", 7),)) == outcome, "there are only six"
    await kubelet.run("next", (Asked("second", 6),))
    assert set(plugin.calls[-1].ids) == set(DEVICES)


async def restarts_containers(kubelet: KubeletUnderTest, plugin: RecordingPlugin) -> None:
    """Each start of a container is announced, and none is allocated again."""
    await _registered(kubelet, plugin)
    await kubelet.run("web", (Asked("main", 1),))
    await kubelet.crash("web")
    assert plugin.names()[2:] == [PREFER, ALLOCATE, START, START]


async def forgets_plugins(kubelet: KubeletUnderTest, plugin: RecordingPlugin) -> None:
    """A restarted kubelet removes sockets, keeps the checkpoint, and starts without asking."""
    await _registered(kubelet, plugin)
    await kubelet.run("web", (Asked("main", 1),))
    count = len(plugin.calls)
    await kubelet.restart()
    assert not plugin.socket.exists()
    assert plugin.watchers == 0
    await eventually(kubelet.allocatable, lambda count: count == 0)
    outcome = await kubelet.run("early", (Asked("main", 1),))
    assert outcome == PodOutcome("Rejected", "UnexpectedAdmissionError")
    await kubelet.crash("web")
    assert len(plugin.calls) == count, "the container has started without a call"
    assert _entries(_now(kubelet), plugin) == {"main": {DEVICES[5]}}
    await plugin.stop()
    await plugin.start()
    await _registered(kubelet, plugin)
    await kubelet.crash("web")
    assert plugin.names()[count:] == [OPTIONS, LIST, START]


async def disconnects_the_later(kubelet: KubeletUnderTest, plugin: RecordingPlugin) -> None:
    """A second registration leaves the first stream open, whose end disconnects the second."""
    await _registered(kubelet, plugin)
    async with plugin_at(kubelet.plugins, "second.sock", *DEVICES) as second:
        second.resource = plugin.resource
        await second.register()
        await eventually(lambda: _soon(second.watchers), lambda count: count == 1)
        await asyncio.sleep(SETTLED_SECONDS)
        assert plugin.watchers == 1, "it was not disconnected"
        await plugin.stop()
        await eventually(lambda: _soon(second.watchers), lambda count: count == 0)
        await eventually(kubelet.allocatable, lambda count: count == 0)
        await second.register()
        await eventually(kubelet.allocatable, lambda count: count == len(DEVICES))
        await kubelet.run("web", (Asked("main", 1),))
        assert second.names()[-3:] == [PREFER, ALLOCATE, START]


CASES: Final[tuple[Case, ...]] = (
    registers,
    admits_in_order,
    forgets_late,
    retries_starts,
    rejects_for_good,
    restarts_containers,
    forgets_plugins,
    disconnects_the_later,
)


async def eventually(look: Callable[[], Awaitable[Seen]], wanted: Callable[[Seen], bool]) -> Seen:
    """Return a value once it is as wanted. Fails with the last value after a time."""
    seen = await look()
    try:
        async with asyncio.timeout(SECONDS):
            while not wanted(seen):
                await asyncio.sleep(PAUSE_SECONDS)
                seen = await look()
    except TimeoutError:
        raise AssertionError(f"not as wanted after {SECONDS:g} s: {seen!r}") from None
    return seen


async def _registered(kubelet: KubeletUnderTest, plugin: RecordingPlugin) -> None:
    await plugin.register()
    await eventually(kubelet.allocatable, lambda count: count == len(DEVICES))


def _now(kubelet: KubeletUnderTest) -> KubeletCall:
    return KubeletCall("", (), (kubelet.plugins / "kubelet_internal_checkpoint").read_text())


def _entries(call: KubeletCall, plugin: RecordingPlugin) -> dict[str, set[str]]:
    """Return the devices of each container in the checkpoint at a call."""
    entries = json.loads(call.checkpoint)["Data"]["PodDeviceEntries"] or ()
    return {
        entry["ContainerName"]: {device for ids in entry["DeviceIDs"].values() for device in ids}
        for entry in entries
        if entry["ResourceName"] == plugin.resource
    }


async def _healthy(kubelet: KubeletUnderTest, plugin: RecordingPlugin) -> set[str]:
    data: Any = json.loads(_now(kubelet).checkpoint)["Data"]
    return set((data["RegisteredDevices"] or {}).get(plugin.resource) or ())


async def _listed(kubelet: KubeletUnderTest, pod: str) -> dict[str, list[list[str]]]:
    """Return the entries of each container of a pod in the pod-resources API."""
    async with grpc.aio.insecure_channel(f"unix:{kubelet.pod_resources}") as channel:
        stub = PodResourcesListerStub(channel)
        answer = await stub.List(pods_api.ListPodResourcesRequest(), timeout=SECONDS)
    return {
        container.name: [list(devices.device_ids) for devices in container.devices]
        for listed in answer.pod_resources
        if listed.name == pod
        for container in listed.containers
    }


async def _soon(value: Seen) -> Seen:
    return value
