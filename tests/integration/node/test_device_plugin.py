"""The device plugin beside a played kubelet, on real unix sockets."""

import asyncio
import json
from pathlib import Path

import pytest
from support.fakes.kubelet import Asked, NotStarted, Rejected, kubelet_in
from support.harness.device_plugin import (
    CARDS,
    ONE,
    FakePlacements,
    card,
    container,
    moved,
    node_in,
    node_with_plugin,
    settings_in,
    share,
)

TWO = (Asked("main", 2),)


async def test_it_registers_and_advertises_each_slot_of_each_card(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        request = node.kubelet.registrations[0]
        assert (request.version, request.resource_name) == ("v1beta1", "nvidia.com/gpu")
        assert request.options.pre_start_required
        assert request.options.get_preferred_allocation_available
        slots = {f"{uuid}-{slot}" for uuid in CARDS[:2] for slot in range(4)}
        assert set(node.kubelet.health) == slots
        assert set(node.kubelet.health.values()) == {"Healthy"}
        assert node.plugin.registered


async def test_a_container_gets_its_cards_and_its_limits(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("a", share(1, 2_000))) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        assert node.limits("a-uid") == {CARDS[1]: 0}, "nothing before it is known whose it is"
        answer = await node.kubelet.start_container("a-uid", "main")
        assert node.limits("a-uid") == {CARDS[1]: 2_000}
        directory = node.plugin.allocations.directory(node.allocation("a-uid"))
        assert dict(answer.envs) == {
            "NVIDIA_VISIBLE_DEVICES": CARDS[1],
            "CUDA_DEVICE_MEMORY_LIMIT_0": "2000m",
            "CUDA_DEVICE_SM_LIMIT": "30",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/run/gpuledger/region",
            "LIBCUDA_LOG_LEVEL": "1",
        }
        library = str(node.settings.library)
        assert [
            (mount.host_path, mount.container_path, mount.read_only) for mount in answer.mounts
        ] == [
            (library, library, True),
            (str(node.settings.preload), "/etc/ld.so.preload", True),
            (str(directory / "limits"), "/etc/gpuledger/limits", True),
            (str(directory / "region"), "/run/gpuledger", False),
        ]
        assert node.settings.preload.read_text() == f"{library}\n"
        assert (directory / "region").stat().st_mode & 0o7777 == 0o1777


async def test_the_kubelet_prefers_the_cards_of_the_ledger(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("a", share(1))) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        assert node.kubelet.answers["a-uid", "main"][0] == {f"{CARDS[1]}-0"}


async def test_pods_on_the_same_cards_each_get_their_own_limits_in_any_order(
    tmp_path: Path,
) -> None:
    placed = [
        container(f"p{number}", share(0, 100 * number), time=number) for number in range(1, 5)
    ]
    async with node_in(tmp_path, *placed) as node:
        for number in (4, 2, 3, 1):
            await node.kubelet.admit("team", f"p{number}", f"p{number}-uid", ONE)
        for number in (3, 1, 4, 2):
            await node.kubelet.start_container(f"p{number}-uid", "main")
        assert [node.limits(f"p{number}-uid")[CARDS[0]] for number in (1, 2, 3, 4)] == [
            100,
            200,
            300,
            400,
        ]
        told = node.kubelet.answers["p4-uid", "main"][1].envs
        assert "CUDA_DEVICE_MEMORY_LIMIT_0" not in told, "it may be another's"


async def test_pods_on_other_cards_are_answered_in_the_order_of_placement(tmp_path: Path) -> None:
    first, second = container("a", share(0), time=1), container("b", share(1), time=2)
    async with node_in(tmp_path, second, first) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.admit("team", "b", "b-uid", ONE)
        for uid in ("b-uid", "a-uid"):
            await node.kubelet.start_container(uid, "main")
        assert node.limits("a-uid") == {CARDS[0]: 1_000}
        assert node.limits("b-uid") == {CARDS[1]: 1_000}


async def test_a_container_with_the_cards_of_another_does_not_start(tmp_path: Path) -> None:
    first, second = container("a", share(0), time=1), container("b", share(1), time=2)
    async with node_in(tmp_path, first, second) as node:
        await node.kubelet.admit("team", "b", "b-uid", ONE)
        with pytest.raises(NotStarted, match=r"FAILED_PRECONDITION.*pod team/b .*in another order"):
            await node.kubelet.start_container("b-uid", "main")
        assert node.limits("b-uid") == {CARDS[0]: 0}
        assert "another order" in node.allocation("b-uid").problem
        # The order is certain now: it does not mislead the next one.
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 1_000}


async def test_with_cdi_no_order_is_wrong(tmp_path: Path) -> None:
    first, second = container("a", share(0, 1), time=1), container("b", share(1, 2), time=2)
    async with node_in(tmp_path, first, second, cdi=True) as node:
        for pod in ("b", "a"):
            await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
        for pod in ("a", "b"):
            answer = await node.kubelet.start_container(f"{pod}-uid", "main")
            assert not answer.envs
            assert not answer.mounts
        assert node.limits("a-uid") == {CARDS[0]: 1}
        assert node.limits("b-uid") == {CARDS[1]: 2}


async def test_init_and_app_containers_with_the_same_devices_have_own_limits(
    tmp_path: Path,
) -> None:
    placed = (
        container("a", share(0, 50), name="fetch"),
        container("a", share(0, 70), share(1, 80), name="train", order=1),
        container("a", share(1, 90), name="serve", order=2),
    )
    asked = (Asked("fetch", 1, init=True), Asked("train", 2), Asked("serve", 1))
    async with node_in(tmp_path, *placed) as node:
        await node.kubelet.admit("team", "a", "a-uid", asked)
        ids = {name: node.kubelet.answers["a-uid", name][0] for name in ("fetch", "train")}
        assert ids["fetch"] < ids["train"], "the kubelet reuses what init containers had"
        for name in ("fetch", "train", "serve", "train"):
            await node.kubelet.start_container("a-uid", name)
        assert node.limits("a-uid", "fetch") == {CARDS[0]: 50}
        assert node.limits("a-uid", "train") == {CARDS[0]: 70, CARDS[1]: 80}
        assert node.limits("a-uid", "serve") == {CARDS[1]: 90}


async def test_an_init_container_and_an_app_with_equal_devices_are_distinguished(
    tmp_path: Path,
) -> None:
    placed = (
        container("a", share(0, 50), name="fetch"),
        container("a", share(0, 70), name="train", order=1),
    )
    asked = (Asked("fetch", 1, init=True), Asked("train", 1))
    async with node_in(tmp_path, *placed) as node:
        await node.kubelet.admit("team", "a", "a-uid", asked)
        await node.kubelet.start_container("a-uid", "fetch")
        assert node.limits("a-uid", "fetch") == {CARDS[0]: 50}
        assert node.limits("a-uid", "train") == {CARDS[0]: 70}


async def test_an_unplaced_pod_is_rejected_with_a_remedy(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("a", share(0), share(1)), allocate_seconds=0.2) as node:
        with pytest.raises(Rejected, match=r"FAILED_PRECONDITION.*1 devices.*1 were placed.*sched"):
            await node.kubelet.admit("team", "b", "b-uid", ONE)
        await node.kubelet.admit("team", "a", "a-uid", TWO)
        await node.kubelet.start_container("a-uid", "main")


async def test_allocate_waits_for_a_late_placement(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        admitted = asyncio.create_task(node.kubelet.admit("team", "a", "a-uid", ONE))
        await asyncio.sleep(0.1)
        assert not admitted.done()
        node.placed.add(container("a", share(0)))
        await admitted
        await node.kubelet.start_container("a-uid", "main")


async def test_allocate_waits_when_the_ledger_is_out_of_reach(tmp_path: Path) -> None:
    async with node_in(tmp_path, allocate_seconds=0.1, outage_seconds=60.0) as node:
        node.placed.trouble = "the log is away"
        admitted = asyncio.create_task(node.kubelet.admit("team", "a", "a-uid", ONE))
        # Longer than a ledger in reach would be waited for.
        await asyncio.sleep(2.0)
        assert not admitted.done()
        assert node.plugin.waited_seconds > 0.5
        node.placed.add(container("a", share(0)))
        await admitted
        assert node.plugin.waited_seconds == 0
        await node.kubelet.start_container("a-uid", "main")


async def test_the_last_answer_reports_that_the_ledger_is_out_of_reach(
    tmp_path: Path,
) -> None:
    async with node_in(tmp_path, outage_seconds=0.1) as node:
        node.placed.trouble = "the log is away"
        with pytest.raises(Rejected, match=r"UNAVAILABLE: .* 1 devices .*: the log is away\."):
            await node.kubelet.admit("team", "a", "a-uid", ONE)


async def test_a_pod_that_was_placed_already_does_not_wait_for_the_ledger(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("a", share(0))) as node:
        node.placed.trouble = "the log is away"
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")


async def test_a_kubelet_that_restarts_is_registered_with_again(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("a", share(0))) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")
        await node.kubelet.restart()
        await node.kubelet.wait_listed()
        assert len(node.kubelet.registrations) == 1
        await node.kubelet.start_container("a-uid", "main")
        node.placed.add(container("b", share(0, 7), time=9))
        await node.kubelet.admit("team", "b", "b-uid", ONE)
        await node.kubelet.start_container("b-uid", "main")
        assert node.limits("b-uid") == {CARDS[0]: 7}


async def test_a_plugin_keeps_its_answer_when_it_restarts_before_the_start(
    tmp_path: Path,
) -> None:
    placed = FakePlacements(
        container("a", share(0, 5), time=1), container("b", share(0, 6), time=2)
    )
    settings = settings_in(tmp_path)
    async with kubelet_in(tmp_path / "kubelet") as kubelet:
        async with node_with_plugin(kubelet, settings, placed):
            await kubelet.admit("team", "b", "b-uid", ONE)
        async with node_with_plugin(kubelet, settings, placed) as node:
            await kubelet.admit("team", "a", "a-uid", ONE)
            for uid in ("b-uid", "a-uid"):
                await kubelet.start_container(uid, "main")
            assert node.limits("b-uid") == {CARDS[0]: 6}
            assert node.limits("a-uid") == {CARDS[0]: 5}


async def test_an_unhealthy_card_is_reported_at_once_and_when_it_recovers(
    tmp_path: Path,
) -> None:
    async with node_in(tmp_path) as node:
        node.plugin.devices.replace([card(0), card(1, healthy=False)])
        await node.kubelet.wait_listed(2)
        ill = {device for device, health in node.kubelet.health.items() if health == "Unhealthy"}
        assert ill == {f"{CARDS[1]}-{slot}" for slot in range(4)}
        node.plugin.devices.replace([card(0), card(1)])
        await node.kubelet.wait_listed(3)
        assert set(node.kubelet.health.values()) == {"Healthy"}


async def test_a_cordoned_card_stays_healthy_for_its_containers(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        node.plugin.devices.replace([card(0, cordoned=True)])
        await node.kubelet.wait_listed(2)
        assert set(node.kubelet.health.values()) == {"Healthy"}


async def test_a_container_with_exclusive_cards_runs_without_the_library(tmp_path: Path) -> None:
    alone = container("a", share(0, 140_000, 100, exclusive=True))
    async with node_in(tmp_path, alone) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        answer = await node.kubelet.start_container("a-uid", "main")
        assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": CARDS[0]}
        assert not answer.mounts


@pytest.mark.parametrize("exclusive", [True, False])
async def test_a_cdi_device_is_described_when_its_container_starts(
    tmp_path: Path, exclusive: bool
) -> None:
    placement = container("a", share(1, 140_000, 100, exclusive=exclusive))
    async with node_in(tmp_path, placement, cdi=True) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        token = node.allocation("a-uid").token
        described = node.settings.cdi_dir / f"gpuledger.io-gpu-{token}.json"
        assert not described.exists(), "a container that nobody verified has no cards"
        answer = await node.kubelet.start_container("a-uid", "main")
        assert [it.name for it in answer.cdi_devices] == [f"gpuledger.io/gpu={token}"]
        (device,) = json.loads(described.read_text())["devices"]
        assert device["name"] == token
        edits = device["containerEdits"]
        assert f"NVIDIA_VISIBLE_DEVICES={CARDS[1]}" in edits["env"]
        assert len(edits["mounts"]) == (0 if exclusive else 4)


async def test_whole_cards_can_be_limited_too(tmp_path: Path) -> None:
    alone = container("a", share(0, 140_000, 100, exclusive=True))
    async with node_in(tmp_path, alone, limit_whole_cards=True) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 140_000}


async def test_limits_that_changed_before_the_start_are_those_of_the_start(tmp_path: Path) -> None:
    placement = container("a", share(0, 10))
    async with node_in(tmp_path, placement) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        node.placed.replace(moved(placement, share(0, 20)))
        await node.kubelet.start_container("a-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 20}


async def test_containers_start_only_once_the_library_is_there(
    tmp_path: Path,
) -> None:
    async with node_in(tmp_path, container("a", share(0)), verify_seconds=0.1) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        node.settings.library.unlink()
        with pytest.raises(NotStarted, match=r"UNAVAILABLE.*libvgpu\.so is not a file.*install"):
            await node.kubelet.start_container("a-uid", "main")
        node.settings.library.write_bytes(b"a library")
        await node.kubelet.start_container("a-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 1_000}


async def test_a_container_that_shares_a_card_never_starts_without_limits(tmp_path: Path) -> None:
    alone = container("a", share(0, 140_000, 100, exclusive=True), time=1)
    async with node_in(tmp_path, alone, container("b", share(0), time=2)) as node:
        await node.kubelet.admit("team", "b", "b-uid", ONE)
        with pytest.raises(NotStarted, match=r"pod team/b .*shares its cards, but its response"):
            await node.kubelet.start_container("b-uid", "main")


async def test_the_kubelet_finishes_a_pod_before_it_begins_another(tmp_path: Path) -> None:
    placed = (
        container("old", share(0, 10), time=1),
        container("new", share(0, 20), name="first", time=2),
        container("new", share(1, 30), name="second", order=1, time=2),
    )
    async with node_in(tmp_path, *placed) as node:
        await node.kubelet.admit("team", "new", "new-uid", (Asked("first", 1), Asked("second", 1)))
        await node.kubelet.admit("team", "old", "old-uid", ONE)
        for uid, name in (("new-uid", "second"), ("new-uid", "first"), ("old-uid", "main")):
            await node.kubelet.start_container(uid, name)
        assert node.limits("new-uid", "first") == {CARDS[0]: 20}
        assert node.limits("new-uid", "second") == {CARDS[1]: 30}


@pytest.mark.parametrize("writes_checkpoint", [True, False])
async def test_an_assumption_ends_with_the_next_request(
    tmp_path: Path, writes_checkpoint: bool
) -> None:
    first, second, third = (
        container(pod, share(card), time=time)
        for pod, card, time in (("a", 0, 1), ("b", 0, 2), ("c", 1, 3))
    )
    async with node_in(tmp_path, first, second, third) as node:
        node.kubelet.writes_checkpoint = writes_checkpoint
        await node.kubelet.admit("team", "b", "b-uid", ONE)
        node.placed.replace(second, third)
        await node.kubelet.admit("team", "c", "c-uid", ONE)
        for uid in ("b-uid", "c-uid"):
            await node.kubelet.start_container(uid, "main")


async def test_a_start_waits_for_the_ledger(tmp_path: Path) -> None:
    async with node_in(tmp_path, cdi=True) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        started = asyncio.create_task(node.kubelet.start_container("a-uid", "main"))
        await asyncio.sleep(0.1)
        assert not started.done()
        node.placed.add(container("a", share(0, 8)))
        await started
        assert node.limits("a-uid") == {CARDS[0]: 8}
