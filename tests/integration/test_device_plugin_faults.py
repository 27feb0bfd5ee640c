"""The device plugin when something is missing, late, wrong or restarted."""

import asyncio
import errno
import itertools
import os
import secrets
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace
from support.kubelet import Asked, Kubelet, NotStarted, Rejected
from support.plugged import (
    CARDS,
    Placed,
    card,
    container,
    node_in,
    running,
    settings_in,
    share,
)

from ledger.core.cards import Share
from vgpu_native.limits_page import Page
from vgpu_native.plugin import allocations, collecting, registering
from vgpu_native.plugin import plugin as whole
from vgpu_native.plugin.plugin import Plugin
from vgpu_native.plugin.wire import deviceplugin_pb2 as api
from vgpu_native.plugin.wire.deviceplugin_pb2_grpc import DevicePluginStub

ONE = (Asked("main", 1),)


async def test_the_pod_resources_api_suffices_where_the_checkpoint_cannot_be_read(
    tmp_path: Path,
) -> None:
    placed = [container(pod, share(0, memory)) for pod, memory in (("a", 5), ("b", 6))]
    async with node_in(tmp_path, *placed) as node:
        node.kubelet.writes_checkpoint = False
        for pod in ("b", "a"):
            await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
        for pod in ("a", "b"):
            await node.kubelet.start_container(f"{pod}-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 5}
        assert node.limits("b-uid") == {CARDS[0]: 6}


async def test_init_containers_start_without_the_checkpoint(tmp_path: Path) -> None:
    placed = (
        container("a", share(0, 40), share(1, 50), name="fetch"),
        container("a", share(0, 70), name="train", order=1),
    )
    asked = (Asked("fetch", 2, init=True), Asked("train", 1))
    async with node_in(tmp_path, *placed) as node:
        node.kubelet.writes_checkpoint = False
        await node.kubelet.admit("team", "a", "a-uid", asked)
        for name in ("fetch", "train"):
            await node.kubelet.start_container("a-uid", name)
        assert node.limits("a-uid", "fetch") == {CARDS[0]: 40, CARDS[1]: 50}
        assert node.limits("a-uid", "train") == {CARDS[0]: 70}


async def test_the_checkpoint_suffices_where_the_pod_resources_api_is_silent(
    tmp_path: Path,
) -> None:
    async with node_in(tmp_path, container("a", share(0))) as node:
        node.kubelet.speaks_of_pods = False
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 1_000}


async def test_nobody_starts_whom_the_kubelet_does_not_name(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("a", share(0)), verify_seconds=0.2) as node:
        node.kubelet.speaks_of_pods = node.kubelet.writes_checkpoint = False
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        with pytest.raises(
            NotStarted, match=r"UNAVAILABLE.*devices_ids .*neither .* it asks again"
        ):
            await node.kubelet.start_container("a-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 0}
        node.kubelet.speaks_of_pods = True
        await node.kubelet.start_container("a-uid", "main")
        assert node.limits("a-uid") == {CARDS[0]: 1_000}


async def test_nobody_starts_whom_the_kubelet_names_in_two_ways(tmp_path: Path) -> None:
    placed = container("a", share(0)), container("b", share(1), share(0))
    async with node_in(tmp_path, *placed, verify_seconds=0.2) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        node.kubelet.lies["a-uid"] = ("team", "b")
        with pytest.raises(NotStarted, match=r"says that team/b has them, .* says team/a"):
            await node.kubelet.start_container("a-uid", "main")


async def test_a_pod_whose_placement_is_gone_does_not_start(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("a", share(0)), verify_seconds=0.2) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        node.placed.replace()
        with pytest.raises(
            NotStarted, match=r"UNAVAILABLE.*pod a-uid: the ledger has no placement"
        ):
            await node.kubelet.start_container("a-uid", "main")


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
async def test_whatever_the_order_nobody_gets_the_cards_or_limits_of_another(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    shares = {"a": share(0, 11), "b": share(1, 22), "c": share(0, 33)}
    placed = [container(pod, shares[pod], time=index) for index, pod in enumerate("abc")]
    async with node_in(tmp_path, *placed) as node:
        for pod in order:
            await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
        for pod in "cab":
            _, answer = node.kubelet.answers[f"{pod}-uid", "main"]
            given = answer.envs["NVIDIA_VISIBLE_DEVICES"]
            if given == shares[pod].uuid:
                await node.kubelet.start_container(f"{pod}-uid", "main")
                assert node.limits(f"{pod}-uid") == {given: shares[pod].memory}
            else:
                with pytest.raises(NotStarted, match="another order"):
                    await node.kubelet.start_container(f"{pod}-uid", "main")
                assert set(node.limits(f"{pod}-uid").values()) == {0}


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
async def test_with_cdi_everybody_starts_whatever_the_order(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    shares = {"a": share(0, 11), "b": share(1, 22), "c": share(0, 33)}
    placed = [container(pod, shares[pod], time=index) for index, pod in enumerate("abc")]
    async with node_in(tmp_path, *placed, cdi=True) as node:
        for pod in order:
            await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
        for pod in reversed(order):
            await node.kubelet.start_container(f"{pod}-uid", "main")
            assert node.limits(f"{pod}-uid") == {shares[pod].uuid: shares[pod].memory}


async def test_pods_that_are_admitted_at_the_same_time_all_get_an_answer(tmp_path: Path) -> None:
    placed = [container(f"p{one}", share(0, 100 + one)) for one in range(4)]
    async with node_in(tmp_path, *placed) as node:
        stub = _stub(node.kubelet)
        ids = [[f"{CARDS[0]}-{slot}"] for slot in range(4)]
        answers = await asyncio.gather(*(_allocate(stub, one) for one in ids))
        for one in range(4):
            node.kubelet.names[f"p{one}-uid"] = ("team", f"p{one}")
            node.kubelet.answers[f"p{one}-uid", "main"] = (frozenset(ids[one]), answers[one])
        node.kubelet.write_checkpoint()
        for one in (2, 0, 3, 1):
            await node.kubelet.start_container(f"p{one}-uid", "main")
            assert node.limits(f"p{one}-uid") == {CARDS[0]: 100 + one}


async def test_of_two_that_wait_for_the_ledger_each_gets_its_own_answer(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        stub = _stub(node.kubelet)
        waiting = [
            asyncio.create_task(_allocate(stub, [f"{CARDS[0]}-{slot}"])) for slot in range(2)
        ]
        await asyncio.sleep(0.1)
        node.placed.add(container("a", share(0), time=1), container("b", share(1), time=2))
        answers = await asyncio.gather(*waiting)
        assert {answer.envs["NVIDIA_VISIBLE_DEVICES"] for answer in answers} == set(CARDS[:2])


async def test_a_socket_that_a_killed_plugin_left_is_replaced(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.plugins_dir.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(settings.socket))
    kubelet = Kubelet(tmp_path / "kubelet")
    kubelet.removes_sockets = False
    await kubelet.start()
    assert settings.socket.is_socket()
    plugin = Plugin(settings, Placed())
    plugin.devices.replace([card(0)])
    async with running(plugin):
        await kubelet.wait_listed()
    await kubelet.stop()


async def test_lists_do_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "STOP_SECONDS", 60)
    async with asyncio.timeout(20):
        async with node_in(tmp_path) as node:
            assert node.plugin.registered
        assert not node.plugin.registered


def test_what_is_no_socket_is_no_kubelet(tmp_path: Path) -> None:
    assert registering.identity(tmp_path) is None
    assert registering.identity(tmp_path / "none") is None


async def test_an_answer_that_the_kubelet_never_got_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocations, "NOTED_MICROSECONDS", -1)
    async with node_in(tmp_path, container("a", share(0, 5)), allocate_seconds=0.3) as node:
        node.kubelet.write_checkpoint()
        await _allocate(_stub(node.kubelet), [f"{CARDS[0]}-3"])
        await node.kubelet.restart()
        await node.kubelet.wait_listed()
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")
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
            await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
            await node.kubelet.start_container(f"{pod}-uid", "main")
            assert node.limits(f"{pod}-uid") == {CARDS[0]: memory}
            ids = node.kubelet.answers[f"{pod}-uid", "main"][0]
            assert len(node.plugin.allocations.with_ids(ids)) == "abc".index(pod) + 1
            tied = [
                one for one in node.plugin.allocations.tied() if one.owner and one.owner.pod == pod
            ]
            assert tied == [node.allocation(f"{pod}-uid")]
            node.kubelet.end(f"{pod}-uid")


async def test_a_pod_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("web-0", share(0, 5))) as node:
        await node.kubelet.admit("team", "web-0", "web-0-uid", ONE)
        await node.kubelet.start_container("web-0-uid", "main")
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
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")
        path = node.plugin.allocations.page(node.allocation("a-uid"))
        before = path.stat().st_ino
        with Page(path):
            await node.kubelet.start_container("a-uid", "main")
        assert path.stat().st_ino == before, "who has mapped it sees later changes"


async def test_records_that_were_lost_are_made_again_from_the_checkpoint(tmp_path: Path) -> None:
    for told in ({}, {"cdi": True}):
        directory = tmp_path / str(len(told))
        directory.mkdir()
        placed = Placed(container("a", share(0, 5)))
        settings = settings_in(directory, **told)
        kubelet = Kubelet(directory / "kubelet")
        await kubelet.start()
        for round_ in (1, 2):
            plugin = Plugin(settings, placed)
            plugin.devices.replace([card(0)])
            async with running(plugin):
                await kubelet.wait_listed(round_)
                if round_ == 1:
                    await kubelet.admit("team", "a", "a-uid", ONE)
                    await kubelet.start_container("a-uid", "main")
                else:
                    await kubelet.start_container("a-uid", "main")
                    (found,) = plugin.allocations.tied()
                    assert found.cards == (CARDS[0],)
                    assert plugin.allocations.page(found).exists()
                    assert plugin.allocations.region(found).is_dir()
            shutil.rmtree(settings.state_dir)
        await kubelet.stop()


async def test_who_is_in_the_checkpoint_is_not_answered_again_when_records_were_lost(
    tmp_path: Path,
) -> None:
    placed, settings = Placed(container("a", share(0), time=1)), settings_in(tmp_path)
    kubelet = Kubelet(tmp_path / "kubelet")
    await kubelet.start()
    for round_, pod in enumerate("ab", 1):
        plugin = Plugin(settings, placed)
        plugin.devices.replace([card(0), card(1)])
        async with running(plugin):
            await kubelet.wait_listed(round_)
            await kubelet.admit("team", pod, f"{pod}-uid", ONE)
            await kubelet.start_container(f"{pod}-uid", "main")
        shutil.rmtree(settings.state_dir)
        placed.add(container("b", share(1), time=2))
    await kubelet.stop()


async def test_a_kubelet_that_lost_its_checkpoint_may_ask_again_for_pods_that_run(
    tmp_path: Path,
) -> None:
    placed = [container(f"p{one}", share(0, 10 + one), time=one) for one in range(3)]
    async with node_in(tmp_path, *placed, allocate_seconds=0.4) as node:
        for _ in range(2):
            for pod in ("p2", "p0", "p1"):
                await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
                await node.kubelet.start_container(f"{pod}-uid", "main")
            found = [node.limits(f"p{one}-uid")[CARDS[0]] for one in range(3)]
            assert found == [10, 11, 12]
            node.placed.replace(*(replace(one, allocated=True) for one in placed))
            node.kubelet.answers.clear()
            node.kubelet.write_checkpoint()
            await node.kubelet.restart()
            await node.kubelet.wait_listed()


async def test_who_was_just_placed_comes_before_who_runs(tmp_path: Path) -> None:
    runs = replace(container("a", share(0), time=1), allocated=True)
    async with node_in(tmp_path, runs) as node:
        admitted = asyncio.create_task(node.kubelet.admit("team", "b", "b-uid", ONE))
        await asyncio.sleep(0.1)
        node.placed.add(container("b", share(1), time=2))
        await admitted
        await node.kubelet.start_container("b-uid", "main")


async def test_a_socket_that_is_removed_is_served_anew(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        node.settings.socket.unlink()
        await node.kubelet.wait_registered(2)
        await node.kubelet.wait_listed(2)


async def test_a_kubelet_that_is_another_is_registered_with_though_our_socket_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "UNHEARD_SECONDS", 1_000)
    async with node_in(tmp_path) as node:
        node.kubelet.removes_sockets = False
        before = node.settings.socket.stat().st_ino
        await node.kubelet.restart()
        await node.kubelet.wait_listed()
        assert len(node.kubelet.registrations) == 1
        assert node.settings.socket.stat().st_ino == before


async def test_a_kubelet_that_no_longer_listens_is_registered_with_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "UNHEARD_SECONDS", 0.1)
    async with node_in(tmp_path) as node:
        await node.kubelet._forget_plugin()
        await node.kubelet.wait_registered(2)


async def test_the_plugin_waits_for_a_kubelet_that_comes_later(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    kubelet = Kubelet(tmp_path / "kubelet")
    settings.plugins_dir.mkdir(parents=True)
    plugin = Plugin(settings, Placed())
    plugin.devices.replace([card(0)])
    async with running(plugin):
        await asyncio.sleep(0.2)
        assert not plugin.registered
        await kubelet.start()
        await kubelet.wait_listed()
    await kubelet.stop()


async def test_nothing_is_registered_before_it_is_known_which_cards_there_are(
    tmp_path: Path,
) -> None:
    kubelet = Kubelet(tmp_path / "kubelet")
    await kubelet.start()
    plugin = Plugin(settings_in(tmp_path), Placed())
    async with running(plugin):
        await asyncio.sleep(0.3)
        assert not kubelet.registrations, "an empty list takes the cards from pods that run"
        plugin.devices.replace([card(0)])
        await kubelet.wait_listed()
        assert len(kubelet.lists[0].devices) == 4
    await kubelet.stop()


async def test_a_registration_that_is_refused_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    class Strict(Kubelet):
        async def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
            if len(refused) < 2:
                refused.append(request)
                await context.abort(grpc.StatusCode.UNKNOWN, "later")
            return await super().Register(request, context)

    kubelet = Strict(tmp_path / "kubelet")
    await kubelet.start()
    plugin = Plugin(settings_in(tmp_path), Placed())
    plugin.devices.replace([card(0)])
    async with running(plugin):
        await kubelet.wait_listed()
        assert len(refused) == 2
    await kubelet.stop()


async def test_registering_says_whom_it_asked_and_why_not(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with pytest.raises(registering.NotRegistered, match=r"kubelet at .*kubelet\.sock: UNAVAILABLE"):
        await registering.register(settings)


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([], r"container_requests\[0\]\.devices_ids has 0 ids; .* 1 to 16"),
        ([f"{CARDS[0]}-{one}" for one in range(17)], "has 17 ids"),
        ([f"{CARDS[0]}-0", f"{CARDS[0]}-0"], "an id is named twice"),
        (["GPU-of-nobody-0"], r"devices_ids GPU-of-nobody-0: not advertised .* ListAndWatch"),
        ([f"{CARDS[0]}-4"], "not advertised"),
    ],
)
async def test_ids_that_nobody_can_have_are_refused_by_name(
    tmp_path: Path, ids: list[str], told: str
) -> None:
    async with node_in(tmp_path, container("a", share(0))) as node:
        with pytest.raises(grpc.aio.AioRpcError, match=told) as caught:
            await _allocate(_stub(node.kubelet), ids)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not node.plugin.allocations.all()


async def test_a_preference_that_cannot_be_had_is_refused_with_its_bounds(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        for size in (0, 3):
            request = api.ContainerPreferredAllocationRequest(
                available_deviceIDs=[f"{CARDS[0]}-0", f"{CARDS[0]}-1"],
                must_include_deviceIDs=[f"{CARDS[0]}-1"],
                allocation_size=size,
            )
            with pytest.raises(grpc.aio.AioRpcError, match=rf"allocation_size {size}: 2 devices"):
                await _stub(node.kubelet).GetPreferredAllocation(
                    api.PreferredAllocationRequest(container_requests=[request]), timeout=5
                )


async def test_a_disk_that_is_full_is_an_error_and_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with node_in(tmp_path, container("a", share(0))) as node:
        with monkeypatch.context() as patch:
            patch.setattr(allocations, "write_whole", full)
            with pytest.raises(Rejected, match=r"INTERNAL.*Allocate: .*No space left"):
                await node.kubelet.admit("team", "a", "a-uid", ONE)
        assert not node.plugin.allocations.all()
        monkeypatch.setattr(collecting, "YOUNG_MICROSECONDS", -1_000_000)
        node.kubelet.write_checkpoint()
        parts = node.plugin.allocations, node.plugin._witness, node.settings
        assert await collecting.collect(*parts) == 1
        assert not list((node.settings.state_dir / "allocations").iterdir())
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")


async def test_instances_of_cards_are_not_handed_out(tmp_path: Path) -> None:
    instance = Share(CARDS[0], 20_000, 14, profile="1g.18gb", size=1)
    async with node_in(tmp_path, container("a", instance)) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        with pytest.raises(NotStarted, match=r"FAILED_PRECONDITION.*instances of cards"):
            await node.kubelet.start_container("a-uid", "main")


async def test_what_the_kubelet_no_longer_has_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "YOUNG_MICROSECONDS", -1)
    placed = container("a", share(0)), container("b", share(0))
    async with node_in(tmp_path, *placed, cdi=True) as node:
        for pod in "ab":
            await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
            await node.kubelet.start_container(f"{pod}-uid", "main")
        node.kubelet.end("a-uid")
        node.placed.replace(placed[1])
        parts = node.plugin.allocations, node.plugin._witness, node.settings
        assert await collecting.collect(*parts) == 0, "the checkpoint still has it"
        checkpoint = node.settings.checkpoint
        content = checkpoint.read_bytes()
        for unreadable in (b"", b"{", None):
            checkpoint.unlink(missing_ok=True)
            if unreadable is not None:
                checkpoint.write_bytes(unreadable)
            assert await collecting.collect(*parts) == 0, (
                "nobody is thought gone for want of a file"
            )
        checkpoint.write_bytes(content)
        node.kubelet.write_checkpoint()
        assert await collecting.collect(*parts) == 1
        (kept,) = node.plugin.allocations.all()
        assert kept.owner is not None
        assert kept.owner.uid == "b-uid"
        assert [one.name for one in node.settings.cdi_dir.iterdir()] == [
            f"gpuledger.io-gpu-{kept.token}.json"
        ]
        assert len(list((node.settings.state_dir / "allocations").iterdir())) == 1


async def test_a_directory_is_not_removed_for_want_of_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "YOUNG_MICROSECONDS", -1)
    placed, settings = Placed(container("a", share(0))), settings_in(tmp_path)
    kubelet = Kubelet(tmp_path / "kubelet")
    await kubelet.start()
    for round_ in (1, 2):
        plugin = Plugin(settings, placed)
        plugin.devices.replace([card(0)])
        async with running(plugin):
            await kubelet.wait_listed(round_)
            if round_ == 1:
                await kubelet.admit("team", "a", "a-uid", ONE)
                await kubelet.start_container("a-uid", "main")
                (found,) = plugin.allocations.tied()
                (plugin.allocations.directory(found) / "record").unlink()
            else:
                parts = plugin.allocations, plugin._witness, settings
                assert await collecting.collect(*parts) == 0
                assert plugin.allocations.page(found).exists(), "it is mounted"
    await kubelet.stop()


async def test_without_the_checkpoint_whom_we_answered_is_not_answered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocations, "NOTED_MICROSECONDS", -1)
    placed = container("a", share(0), time=1), container("b", share(1), time=2)
    async with node_in(tmp_path, *placed) as node:
        node.kubelet.writes_checkpoint = False
        for pod in "ab":
            await node.kubelet.admit("team", pod, f"{pod}-uid", ONE)
            await node.kubelet.start_container(f"{pod}-uid", "main")


async def test_a_tenant_with_many_files_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(collecting, "YOUNG_MICROSECONDS", -1)
    monkeypatch.setattr(collecting, "remove_tree", lambda _: released.wait(10))
    async with node_in(tmp_path, container("a", share(0))) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")
        node.kubelet.end("a-uid")
        node.placed.replace()
        node.kubelet.write_checkpoint()
        parts = node.plugin.allocations, node.plugin._witness, node.settings
        removing = asyncio.create_task(collecting.collect(*parts))
        node.placed.add(container("b", share(0), time=2))
        await node.kubelet.admit("team", "b", "b-uid", ONE)
        assert not removing.done()
        released.set()
        assert await removing == 1


async def test_links_that_a_tenant_makes_are_removed_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "YOUNG_MICROSECONDS", -1)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    async with node_in(tmp_path, container("a", share(0))) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")
        (node.plugin.allocations.region(node.allocation("a-uid")) / "region").symlink_to(precious)
        node.kubelet.end("a-uid")
        node.placed.replace()
        node.kubelet.write_checkpoint()
        parts = node.plugin.allocations, node.plugin._witness, node.settings
        assert await collecting.collect(*parts) == 1
        assert (precious / "file").read_text() == "kept"


async def test_whom_a_kubelet_has_forgotten_keeps_limits_while_the_ledger_places_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "YOUNG_MICROSECONDS", -1)
    async with node_in(tmp_path, container("a", share(0))) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")
        found = node.allocation("a-uid")
        # Somebody removes the checkpoint, and the kubelet starts again without it.
        node.kubelet.end("a-uid")
        node.kubelet.write_checkpoint()
        parts = node.plugin.allocations, node.plugin._witness, node.settings
        assert await collecting.collect(*parts) == 0
        assert node.plugin.allocations.page(found).exists(), "it is mounted"
        node.placed.replace()
        assert await collecting.collect(*parts) == 1


async def test_directories_that_a_tenant_nests_deep_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "YOUNG_MICROSECONDS", -1)
    async with node_in(tmp_path, container("a", share(0))) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        await node.kubelet.start_container("a-uid", "main")
        found = node.allocation("a-uid")
        for _ in range(2):
            _nest(node.plugin.allocations.region(found), 3_000)
        node.kubelet.end("a-uid")
        node.placed.replace()
        node.kubelet.write_checkpoint()
        parts = node.plugin.allocations, node.plugin._witness, node.settings
        assert await collecting.collect(*parts) == 1
        assert not node.plugin.allocations.directory(found).exists()


def _nest(directory: Path, depth: int) -> None:
    """Make so many directories, each in the one before, and a file in each."""
    inner = os.open(directory, os.O_RDONLY)
    name = secrets.token_hex(4)
    for _ in range(depth):
        os.mkdir(name, dir_fd=inner)
        outer, inner = inner, os.open(name, os.O_RDONLY, dir_fd=inner)
        os.close(outer)
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=inner))
    os.close(inner)


def _stub(kubelet: Kubelet) -> Any:
    return DevicePluginStub(kubelet._channel)


async def _allocate(stub: Any, ids: list[str]) -> Any:
    request = api.AllocateRequest(
        container_requests=[api.ContainerAllocateRequest(devices_ids=ids)]
    )
    return (await stub.Allocate(request, timeout=10)).container_responses[0]
