"""A thread reads the kubelet's checkpoint, and the result is current when the read ends."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.harness.device_plugin import FakePlacements, settings_in

from vgpu_native.plugin.kubelet import kubelet_checkpoint
from vgpu_native.plugin.kubelet.kubelet_checkpoint import CheckpointEntry
from vgpu_native.plugin.kubelet.kubelet_state import READS_MAX, KubeletState

SECONDS = 30.0


@pytest.fixture
def kubelet(tmp_path: Path) -> KubeletState:
    settings = settings_in(tmp_path)
    settings.checkpoint.parent.mkdir(parents=True)
    write(settings.checkpoint, "a")
    return KubeletState(settings, FakePlacements())


def write(path: Path, uid: str) -> None:
    """Replace the checkpoint, as the kubelet does, by one with a pod."""
    fresh = path.with_suffix(".new")
    entry = {"PodUID": uid, "ResourceName": "nvidia.com/gpu"}
    fresh.write_text(json.dumps({"Data": {"PodDeviceEntries": [entry]}}))
    fresh.rename(path)


def reading(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Path], None]) -> None:
    """Run `meanwhile` after each read of a checkpoint, before the read returns."""
    read = kubelet_checkpoint.read

    def slow(path: Path, resource: str) -> tuple[CheckpointEntry, ...]:
        entries = read(path, resource)
        meanwhile(path)
        return entries

    monkeypatch.setattr(kubelet_checkpoint, "read", slow)


async def test_the_event_loop_runs_while_a_checkpoint_is_read(
    kubelet: KubeletState, monkeypatch: pytest.MonkeyPatch
) -> None:
    went_on = threading.Event()
    waited: list[bool] = []
    reading(monkeypatch, lambda _: waited.append(went_on.wait(SECONDS)))
    asking = asyncio.create_task(kubelet.entries())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.05, went_on.set)
    assert await asking
    assert waited == [True]


async def test_a_checkpoint_is_read_again_when_written_during_the_read(
    kubelet: KubeletState, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = ["b"]
    reading(monkeypatch, lambda path: write(path, left.pop()) if left else None)
    entries = await kubelet.entries()
    assert entries is not None
    assert [entry.uid for entry in entries] == ["b"]


async def test_the_reads_are_bounded_when_a_checkpoint_changes_always(
    kubelet: KubeletState, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def again(path: Path) -> None:
        read.append("")
        write(path, f"pod-{len(read)}")

    reading(monkeypatch, again)
    entries = await kubelet.entries()
    assert entries is not None
    assert [entry.uid for entry in entries] == [f"pod-{READS_MAX - 1}"]
