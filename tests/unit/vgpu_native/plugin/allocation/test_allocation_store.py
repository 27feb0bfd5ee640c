"""The plugin's allocations, CDI specifications, advertised devices and changes."""

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from support.harness.device_plugin import CARDS, card, container, settings_in, share

from vgpu_native.plugin.advertised_devices import AdvertisedDevices
from vgpu_native.plugin.allocation import allocation_store as kept
from vgpu_native.plugin.allocation import cdi_specification, container_environment
from vgpu_native.plugin.allocation.allocation_store import AllocationStore, owner_of
from vgpu_native.plugin.grpc_status import RejectedCall
from vgpu_native.shared.atomic_file import write_whole
from vgpu_native.shared.change_counter import ChangeCounter


def test_allocations_are_loaded_after_a_restart(tmp_path: Path) -> None:
    first = AllocationStore(tmp_path)
    first.load()
    made = first.make([f"{CARDS[0]}-0"], cdi=False)
    first.put(made)
    again = AllocationStore(tmp_path)
    again.load()
    assert again.all() == [made]


def test_host_users_cannot_reach_the_files_of_containers(tmp_path: Path) -> None:
    directory = tmp_path / "allocations"
    directory.mkdir(mode=0o755)
    some = AllocationStore(directory)
    some.load()
    made = some.make([f"{CARDS[0]}-0"], cdi=False)
    assert stat.S_IMODE(some.region(made).stat().st_mode) == 0o1777
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_an_unreadable_record_is_kept_and_harms_no_other(tmp_path: Path) -> None:
    first = AllocationStore(tmp_path)
    first.load()
    good, bad = (first.make([f"{CARDS[0]}-{slot}"], cdi=False) for slot in range(2))
    first.put(good)
    (first.directory(bad) / "record").write_text("{")
    again = AllocationStore(tmp_path)
    again.load()
    assert again.all() == [good]
    assert again.orphans(2**62) == []
    assert (first.directory(bad) / "record").exists()


def test_an_allocation_is_rejected_when_the_store_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "ALLOCATIONS_MAX", 1)
    some = AllocationStore(tmp_path)
    some.load()
    some.put(some.make(["A-0"], cdi=False))
    with pytest.raises(RejectedCall, match=r"1 allocations in .*: that is the maximum"):
        some.make(["A-1"], cdi=False)


def test_a_file_is_unchanged_when_its_write_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record"
    write_whole(path, b"before", 0o644)

    def broken(_: int) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="no"):
        write_whole(path, b"after")
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["record"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_cdi_specification_has_all_parts_of_a_plain_response(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, oversubscribe=True, cores_off=True, log_level=3)
    placement = container("a", share(1, 5, 20), share(0, 7, 30))
    variables = container_environment.environment(
        placement.cards, placement.shares, settings, limited=True
    )
    cdi_specification.write(
        settings.cdi_dir,
        "a1",
        variables,
        container_environment.mounts(
            tmp_path / "limits", tmp_path / "region", settings, limited=True
        ),
    )
    specification = json.loads((settings.cdi_dir / "gpuledger.io-gpu-a1.json").read_text())
    assert (specification["cdiVersion"], specification["kind"]) == ("0.5.0", "gpuledger.io/gpu")
    ((name, edits),) = [(it["name"], it["containerEdits"]) for it in specification["devices"]]
    assert name == "a1"
    assert container_environment.cdi_response("a1").cdi_devices[0].name == "gpuledger.io/gpu=a1"
    assert sorted(edits["env"]) == [
        "CUDA_DEVICE_MEMORY_LIMIT_0=5m",
        "CUDA_DEVICE_MEMORY_LIMIT_1=7m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE=/run/gpuledger/region",
        "CUDA_DEVICE_SM_LIMIT=20",
        "CUDA_OVERSUBSCRIBE=true",
        "GPU_CORE_UTILIZATION_POLICY=disable",
        "LIBCUDA_LOG_LEVEL=3",
        f"NVIDIA_VISIBLE_DEVICES={CARDS[1]},{CARDS[0]}",
    ]
    where = {it["containerPath"]: (it["hostPath"], it["options"][0]) for it in edits["mounts"]}
    assert where == {
        str(settings.library): (str(settings.library), "ro"),
        "/etc/ld.so.preload": (str(settings.preload), "ro"),
        "/etc/gpuledger/limits": (str(tmp_path / "limits"), "ro"),
        "/run/gpuledger": (str(tmp_path / "region"), "rw"),
    }


def test_devices_have_a_numa_node_only_when_the_setting_is_on() -> None:
    for numa in (True, False):
        devices = AdvertisedDevices(numa=numa)
        devices.replace([card(0, numa=1)])
        (first, *_) = devices.listed().devices
        assert [node.ID for node in first.topology.nodes] == ([1] if numa else [])


def test_the_version_is_unchanged_when_the_cards_are_the_same() -> None:
    devices = AdvertisedDevices()
    devices.replace([card(1), card(0)])
    version = devices.changes.version
    devices.replace([card(0), card(1)])
    assert devices.changes.version == version


def test_the_old_cards_stay_when_a_uuid_is_too_long_for_the_kubelet() -> None:
    devices = AdvertisedDevices()
    devices.replace([card(0)])
    long = type(card(0))("G" * 62, 1, "NVIDIA", 1, 100, 1)
    with pytest.raises(ValueError, match="more than 63 characters"):
        devices.replace([long])
    assert devices.cards == (card(0),)


async def test_a_change_between_read_and_wait_is_not_missed() -> None:
    changes = ChangeCounter()
    version = changes.version
    changes.increment()
    await asyncio.wait_for(changes.wait(version), 1)
    waiting = [asyncio.create_task(changes.wait(changes.version)) for _ in range(3)]
    await asyncio.sleep(0)
    changes.increment()
    await asyncio.wait_for(asyncio.gather(*waiting), 1)


def test_an_owner_has_the_key_of_its_container() -> None:
    placement = container("a", share(0))
    assert owner_of(placement).key == placement.key
    assert str(placement) == "container main of pod team/a (a-uid)"
