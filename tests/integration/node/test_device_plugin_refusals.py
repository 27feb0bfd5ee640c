"""Requests that the device plugin cannot serve are refused with a reason, and leave nothing."""

import errno
import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.fakes.kubelet import NotStarted, Rejected
from support.harness.device_plugin import CARDS, ONE, container, node_in, share

from ledger.core.model.cards import Share
from vgpu_native.plugin.allocation import allocation_store, garbage_collection
from vgpu_native.plugin.kubelet.generated import deviceplugin_pb2 as api


async def test_a_pod_whose_placement_is_gone_does_not_start(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("a", share(0)), verify_seconds=0.2) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        node.placed.replace()
        with pytest.raises(
            NotStarted, match=r"UNAVAILABLE.*pod a-uid: the ledger has no placement"
        ):
            await node.kubelet.start_container("a-uid", "main")


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([], r"container_requests\[0\]\.devices_ids has 0 ids; .* 1 to 16"),
        ([f"{CARDS[0]}-{slot}" for slot in range(17)], "has 17 ids"),
        ([f"{CARDS[0]}-0", f"{CARDS[0]}-0"], "an id is named twice"),
        (["GPU-of-nobody-0"], r"devices_ids GPU-of-nobody-0: not advertised .* ListAndWatch"),
        ([f"{CARDS[0]}-4"], "not advertised"),
    ],
)
async def test_impossible_ids_are_refused_by_name(
    tmp_path: Path, ids: list[str], told: str
) -> None:
    async with node_in(tmp_path, container("a", share(0))) as node:
        with pytest.raises(grpc.aio.AioRpcError, match=told) as caught:
            await node.allocate(*ids)
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
                await node.kubelet.stub.GetPreferredAllocation(
                    api.PreferredAllocationRequest(container_requests=[request]), timeout=5
                )


async def test_a_disk_that_is_full_is_an_error_and_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with node_in(tmp_path, container("a", share(0))) as node:
        with monkeypatch.context() as patch:
            patch.setattr(allocation_store, "write_whole", full)
            with pytest.raises(Rejected, match=r"INTERNAL.*Allocate: .*No space left"):
                await node.kubelet.admit("team", "a", "a-uid", ONE)
        assert not node.plugin.allocations.all()
        monkeypatch.setattr(garbage_collection, "YOUNG_MICROSECONDS", -1_000_000)
        node.kubelet.write_checkpoint()
        assert await node.collect() == 1
        assert not list((node.settings.state_dir / "allocations").iterdir())
        await node.run("a")


async def test_mig_instances_are_not_allocated(tmp_path: Path) -> None:
    instance = Share(CARDS[0], 20_000, 14, profile="1g.18gb", size=1)
    async with node_in(tmp_path, container("a", instance)) as node:
        await node.kubelet.admit("team", "a", "a-uid", ONE)
        with pytest.raises(NotStarted, match=r"FAILED_PRECONDITION.*MIG instances"):
            await node.kubelet.start_container("a-uid", "main")
