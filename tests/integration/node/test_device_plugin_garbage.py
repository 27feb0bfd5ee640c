"""The device plugin's records of containers are removed when they are gone, and no others."""

import asyncio
import os
import secrets
import threading
from pathlib import Path

import pytest
from support.fakes.kubelet import kubelet_in
from support.harness.device_plugin import (
    ONE,
    FakePlacements,
    Node,
    container,
    node_in,
    node_with_plugin,
    settings_in,
    share,
)

from vgpu_native.plugin.allocation import allocation_store, garbage_collection
from vgpu_native.plugin.allocation.region_file_systems import RegionSlots


@pytest.fixture(autouse=True)
def _no_container_is_too_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "YOUNG_MICROSECONDS", -1)


async def test_only_allocations_that_the_kubelet_lacks_are_removed(
    tmp_path: Path,
) -> None:
    placed = container("a", share(0)), container("b", share(0))
    async with node_in(tmp_path, *placed, cdi=True) as node:
        for pod in "ab":
            await node.run(pod)
        node.kubelet.end("a-uid")
        node.placed.replace(placed[1])
        assert await node.collect() == 0, "the checkpoint still has it"
        checkpoint = node.settings.checkpoint
        content = checkpoint.read_bytes()
        for unreadable in (b"", b"{", None):
            checkpoint.unlink(missing_ok=True)
            if unreadable is not None:
                checkpoint.write_bytes(unreadable)
            assert await node.collect() == 0, "without the file no container counts as gone"
        checkpoint.write_bytes(content)
        node.kubelet.write_checkpoint()
        assert await node.collect() == 1
        (kept,) = node.plugin.allocations.all()
        assert kept.owner is not None
        assert kept.owner.uid == "b-uid"
        assert [file.name for file in node.settings.cdi_dir.iterdir()] == [
            f"gpuledger.io-gpu-{kept.token}.json"
        ]
        assert len(list((node.settings.state_dir / "allocations").iterdir())) == 1


async def test_room_is_made_at_once_when_all_slots_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node on which short pods follow each other runs out of slots before they are old."""
    monkeypatch.setattr(garbage_collection, "YOUNG_MICROSECONDS", 1 << 60)
    monkeypatch.setattr(garbage_collection, "EARLY_MICROSECONDS", -1)
    monkeypatch.setattr(RegionSlots, "is_mounted", lambda slots, name: slots.path(name).is_dir())
    for slot in ("0", "1"):
        (tmp_path / "state" / "slots" / slot).mkdir(parents=True)
    async with node_in(tmp_path, *(container(pod, share(0)) for pod in "abc")) as node:
        for pod in "abc":
            await node.run(pod)
            node.kubelet.end(f"{pod}-uid")
            node.placed.replace(*(container(other, share(0)) for other in "abc" if other > pod))
        owners = [allocation.owner for allocation in node.plugin.allocations.all()]
        assert [owner.pod for owner in owners if owner] == ["b", "c"]


async def test_a_directory_is_not_removed_for_want_of_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed, settings = FakePlacements(container("a", share(0))), settings_in(tmp_path)
    async with kubelet_in(tmp_path / "kubelet") as kubelet:
        async with node_with_plugin(kubelet, settings, placed) as node:
            await node.run("a")
            allocation = node.allocation("a-uid")
            (node.plugin.allocations.directory(allocation) / "record").unlink()
        async with node_with_plugin(kubelet, settings, placed) as node:
            assert await node.collect() == 0
            assert node.plugin.allocations.page(allocation).exists(), "it is mounted"


async def test_a_forgotten_container_keeps_limits_while_the_ledger_places_it(
    tmp_path: Path,
) -> None:
    async with node_in(tmp_path, container("a", share(0))) as node:
        await node.run("a")
        allocation = node.allocation("a-uid")
        # The checkpoint is removed, and the kubelet starts again without it.
        node.kubelet.end("a-uid")
        node.kubelet.write_checkpoint()
        assert await node.collect() == 0
        assert node.plugin.allocations.page(allocation).exists(), "it is mounted"
        node.placed.replace()
        assert await node.collect() == 1


async def test_a_tenant_with_many_files_does_not_delay_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(allocation_store, "remove_tree", lambda _: released.wait(10))
    async with node_in(tmp_path, container("a", share(0))) as node:
        await node.run("a")
        _end(node)
        removing = asyncio.create_task(node.collect())
        node.placed.add(container("b", share(0), time=2))
        await node.kubelet.admit("team", "b", "b-uid", ONE)
        assert not removing.done()
        released.set()
        assert await removing == 1


async def test_links_that_a_tenant_makes_are_removed_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    async with node_in(tmp_path, container("a", share(0))) as node:
        await node.run("a")
        (node.plugin.allocations.region(node.allocation("a-uid")) / "region").symlink_to(precious)
        _end(node)
        assert await node.collect() == 1
        assert (precious / "file").read_text() == "kept"


async def test_directories_that_a_tenant_nests_deep_are_removed(tmp_path: Path) -> None:
    async with node_in(tmp_path, container("a", share(0))) as node:
        await node.run("a")
        allocation = node.allocation("a-uid")
        for _ in range(2):
            _nest(node.plugin.allocations.region(allocation), 3_000)
        _end(node)
        assert await node.collect() == 1
        assert not node.plugin.allocations.directory(allocation).exists()


def _end(node: Node) -> None:
    """Let the pod be gone, for the kubelet and for the ledger."""
    node.kubelet.end("a-uid")
    node.placed.replace()
    node.kubelet.write_checkpoint()


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
