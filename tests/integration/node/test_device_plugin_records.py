"""The device plugin's answers are remembered, by it or by the kubelet, and used once."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.fakes.kubelet import kubelet_in
from support.harness.device_plugin import (
    CARDS,
    ONE,
    FakePlacements,
    container,
    node_in,
    node_with_plugin,
    settings_in,
    share,
)

from vgpu_native.plugin.allocation import allocation_store
from vgpu_native.shared.limits_page import LimitsPage


async def test_a_response_that_the_kubelet_never_got_has_no_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation_store, "NOTED_MICROSECONDS", -1)
    async with node_in(tmp_path, container("a", share(0, 5)), allocate_seconds=0.3) as node:
        node.kubelet.write_checkpoint()
        await node.allocate(f"{CARDS[0]}-3")
        await node.kubelet.restart()
        await node.kubelet.wait_listed()
        await node.run("a")
        assert node.limits("a-uid") == {CARDS[0]: 5}


@pytest.mark.parametrize("writes_checkpoint", [True, False])
async def test_devices_of_a_pod_that_has_ended_are_the_next_ones(
    tmp_path: Path, writes_checkpoint: bool
) -> None:
    async with node_in(tmp_path, container("a", share(0, 5))) as node:
        node.kubelet.writes_checkpoint = writes_checkpoint
        node.kubelet.follows_preferences = False
        for pod, memory in (("a", 5), ("b", 6), ("c", 7)):
            node.placed.replace(container(pod, share(0, memory)))
            await node.run(pod)
            assert node.limits(f"{pod}-uid") == {CARDS[0]: memory}
            ids = node.kubelet.answers[f"{pod}-uid", "main"][0]
            assert len(node.plugin.allocations.with_ids(ids)) == "abc".index(pod) + 1
            assigned = [
                allocation
                for allocation in node.plugin.allocations.assigned()
                if allocation.owner and allocation.owner.pod == pod
            ]
            assert assigned == [node.allocation(f"{pod}-uid")]
            node.kubelet.end(f"{pod}-uid")


async def test_a_pod_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("web-0", share(0, 5))) as node:
        await node.run("web-0")
        node.kubelet.end("web-0-uid")
        again = container("web-0", share(1, 9))
        node.placed.replace(type(again)("team", "web-0", "second", "main", 0, (share(1, 9),), 1))
        await node.kubelet.admit("team", "web-0", "second", ONE)
        await node.kubelet.start_container("second", "main")
        assert node.limits("second") == {CARDS[1]: 9}


async def test_a_container_that_restarts_keeps_the_page_that_the_agent_writes(
    tmp_path: Path,
) -> None:
    async with node_in(tmp_path, container("a", share(0, 5))) as node:
        await node.run("a")
        path = node.plugin.allocations.page(node.allocation("a-uid"))
        before = path.stat().st_ino
        with LimitsPage(path):
            await node.kubelet.start_container("a-uid", "main")
        assert path.stat().st_ino == before, "who has mapped it sees later changes"


@pytest.mark.parametrize("cdi", [False, True])
async def test_records_that_were_lost_are_made_again_from_the_checkpoint(
    tmp_path: Path, cdi: bool
) -> None:
    placed, settings = FakePlacements(container("a", share(0, 5))), settings_in(tmp_path, cdi=cdi)
    async with kubelet_in(tmp_path / "kubelet") as kubelet:
        async with node_with_plugin(kubelet, settings, placed) as node:
            await node.run("a")
        shutil.rmtree(settings.state_dir)
        async with node_with_plugin(kubelet, settings, placed) as node:
            await kubelet.start_container("a-uid", "main")
            (allocation,) = node.plugin.allocations.assigned()
            assert allocation.cards == (CARDS[0],)
            assert node.plugin.allocations.page(allocation).exists()
            assert node.plugin.allocations.region(allocation).is_dir()


async def test_a_container_in_the_checkpoint_gets_no_answer_without_records(
    tmp_path: Path,
) -> None:
    placed, settings = FakePlacements(container("a", share(0), time=1)), settings_in(tmp_path)
    async with kubelet_in(tmp_path / "kubelet") as kubelet:
        async with node_with_plugin(kubelet, settings, placed) as node:
            await node.run("a")
        shutil.rmtree(settings.state_dir)
        placed.add(container("b", share(1), time=2))
        async with node_with_plugin(kubelet, settings, placed) as node:
            await node.run("b")


async def test_a_kubelet_without_checkpoint_may_ask_again_for_running_pods(
    tmp_path: Path,
) -> None:
    placed = [container(f"p{number}", share(0, 10 + number), time=number) for number in range(3)]
    async with node_in(tmp_path, *placed, allocate_seconds=0.4) as node:
        for _ in range(2):
            for pod in ("p2", "p0", "p1"):
                await node.run(pod)
            limits = [node.limits(f"p{number}-uid")[CARDS[0]] for number in range(3)]
            assert limits == [10, 11, 12]
            node.placed.replace(*(replace(placement, allocated=True) for placement in placed))
            node.kubelet.answers.clear()
            node.kubelet.write_checkpoint()
            await node.kubelet.restart()
            await node.kubelet.wait_listed()


async def test_a_container_gets_one_response_when_there_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation_store, "NOTED_MICROSECONDS", -1)
    placed = container("a", share(0), time=1), container("b", share(1), time=2)
    async with node_in(tmp_path, *placed) as node:
        node.kubelet.writes_checkpoint = False
        for pod in "ab":
            await node.run(pod)
