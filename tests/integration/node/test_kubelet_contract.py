"""The played kubelet passes the contract that the real one passes in `make e2e-node`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from support.fakes.kubelet import Asked, Kubelet, NotStarted, Rejected, kubelet_in
from support.kubelets.kubelet_contract import CASES, DEVICES, Case, PodOutcome, registers
from support.kubelets.recording_plugin import plugin_at


class PlayedKubelet:
    """The played kubelet as the contract uses it. A pod's uid is its name."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet
        self.plugins = kubelet.plugins
        self.pod_resources = kubelet.pod_resources

    async def run(self, name: str, asked: Sequence[Asked]) -> PodOutcome:
        try:
            await self._kubelet.admit("team", name, name, asked)
        except Rejected:
            return PodOutcome("Rejected", "UnexpectedAdmissionError")
        return await self.retry(name)

    async def retry(self, name: str) -> PodOutcome:
        try:
            for asked in self._kubelet.asked[name]:
                if asked.count:
                    await self._kubelet.start_container(name, asked.name)
        except NotStarted:
            return PodOutcome("Waiting", "CreateContainerConfigError")
        return PodOutcome("Running")

    async def end(self, name: str) -> None:
        self._kubelet.end(name)

    async def crash(self, name: str) -> None:
        assert (await self.retry(name)).phase == "Running"

    async def restart(self) -> None:
        await self._kubelet.restart()
        await asyncio.sleep(0)

    async def allocatable(self) -> int:
        return list(self._kubelet.health.values()).count("Healthy")


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[PlayedKubelet]:
    """Run a kubelet."""
    async with kubelet_in(tmp_path) as played:
        yield PlayedKubelet(played)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_played_kubelet_keeps_the_contract(kubelet: PlayedKubelet, case: Case) -> None:
    async with plugin_at(kubelet.plugins, "things.sock", *DEVICES) as plugin:
        await case(kubelet, plugin)


async def test_a_pod_leaves_no_devices_when_another_container_gets_none(
    kubelet: PlayedKubelet,
) -> None:
    async with plugin_at(kubelet.plugins, "things.sock", *DEVICES) as plugin:
        await registers(kubelet, plugin)
        outcome = await kubelet.run("many", (Asked("main", 1), Asked("large", len(DEVICES))))
        assert outcome == PodOutcome("Rejected", "UnexpectedAdmissionError")
        assert (await kubelet.run("next", (Asked("main", 5),))).phase == "Running"
