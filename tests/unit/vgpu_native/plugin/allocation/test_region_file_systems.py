"""Region file systems: a slot bounds a container's region, so that it cannot fill the node's disk.

The script of deploy/agent mounts the slots, in a mount namespace of a child process.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.builders.manifests import DEPLOY, documents

from ledger.core.model.cards import Share
from vgpu_native.plugin.allocation.allocation_store import AllocationStore
from vgpu_native.plugin.allocation.pre_start_assignment import assign
from vgpu_native.plugin.allocation.region_file_systems import RegionSlots, slot_in
from vgpu_native.plugin.grpc_status import RejectedCall
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.shared.layout import REGION_SIZE

[SLOTS] = [
    container
    for manifest in documents(DEPLOY / "agent" / "daemonset.yaml")
    for container in manifest["spec"]["template"]["spec"]["initContainers"]
    if container["name"] == "slots"
]
ROOT: Final = Path(__file__).parents[5]
SLOT_BYTES: Final = 4 * 1024**2

WRITING: Final = """
import os, sys
from pathlib import Path
from vgpu_native.plugin.allocation.allocation_store import AllocationStore
from vgpu_native.plugin.grpc_status import RejectedCall
from vgpu_native.plugin.allocation.region_file_systems import RegionSlots, slot_in

state = Path(sys.argv[1])
slots = RegionSlots(state / "slots")
allocations = AllocationStore(state / "allocations", slots)
allocations.load()


def fill(region):
    written = 0
    with (region / "junk").open("wb", buffering=0) as file:
        try:
            for _ in range(64):
                written += file.write(bytes(1024**2))
        except OSError as error:
            return written, error.errno
    return written, 0


def refused():
    try:
        allocations.make(["x"], cdi=False)
    except RejectedCall as error:
        return str(error)
    return ""
"""


def mounting() -> list[str]:
    """Return the prefix of a command that may mount, or skip."""
    for command in (["unshare", "-m"], ["unshare", "-Urm"]):
        if (
            shutil.which("unshare")
            and not subprocess.run([*command, "true"], check=False).returncode
        ):
            return command
    pytest.skip("this machine lets no test mount: no slot was mounted")


def run_with_slots(tmp_path: Path, code: str, slots: int = 2) -> str:
    """Run the init container's script twice, then code, in a mount namespace of their own."""
    [script] = SLOTS["args"]
    directory = tmp_path / "slots"
    environment = os.environ | {"DIRECTORY": str(directory), "SLOTS": str(slots)}
    environment["PYTHONPATH"] = str(ROOT)
    (tmp_path / "code.py").write_text(WRITING + code)
    child = f"{script}\n{script}\n{sys.executable} {tmp_path / 'code.py'} {tmp_path}"
    command = [*mounting(), "sh", "-ec", child]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_container_cannot_write_more_than_its_slot_holds(tmp_path: Path) -> None:
    code = """
allocation = allocations.make(["x"], cdi=False)
allocations.put(allocation)
region = allocations.region(allocation)
assert region == slots.path(slot_in(allocation.token)), region
print(*fill(region))
"""
    written, errno = map(int, run_with_slots(tmp_path, code).split())
    assert REGION_SIZE < written <= SLOT_BYTES
    assert errno == 28, "no space is left on the device"
    assert sum(file.stat().st_size for file in tmp_path.rglob("junk")) == 0


def test_the_number_of_empty_files_is_bounded(tmp_path: Path) -> None:
    code = """
region = allocations.region(allocations.make(["x"], cdi=False))
made = 0
try:
    for made in range(100_000):
        (region / str(made)).mkdir()
except OSError:
    print(made)
"""
    assert 0 < int(run_with_slots(tmp_path, code)) < 200


def test_a_slot_has_one_container_until_its_files_are_removed(tmp_path: Path) -> None:
    code = """
first, second = (allocations.make([name], cdi=False) for name in "ab")
for allocation in (first, second):
    allocations.put(allocation)
assert allocations.region(first) != allocations.region(second)
(allocations.region(first) / "deep" / "deeper").mkdir(parents=True)
allocations.region(first).chmod(0)
print(refused())
allocations.drop(first)
assert refused(), "its directory still exists"
allocations.release(allocations.directory(first))
third = allocations.make(["c"], cdi=True)
assert slot_in(third.token) == slot_in(first.token)
region = allocations.region(third)
assert list(region.iterdir()) == []
assert region.stat().st_mode & 0o7777 == 0o1777
assert slots.mounted() == ["0", "1"]
# The container of a restored allocation runs already, so its files stay.
(region / "region").write_bytes(b"x")
allocations.restore(third.token, ["c"], ["GPU-0"], limited=True, cdi=True)
assert (region / "region").read_bytes() == b"x"
"""
    assert "all slots below" in run_with_slots(tmp_path, code)


def test_regions_are_on_the_disk_with_a_warning_when_there_are_no_slots(tmp_path: Path) -> None:
    slots = RegionSlots(tmp_path / "slots")
    for name in ("0", "1", "x"):
        slots.path(name).mkdir(parents=True)
    allocations = AllocationStore(tmp_path / "allocations", slots)
    allocations.load()
    made = allocations.make(["x"], cdi=False)
    assert slot_in(made.token) == ""
    assert allocations.region(made) == allocations.directory(made) / "region"
    assert "no slots are mounted" in slots.warning
    allocations.release(allocations.directory(made))
    assert run_with_slots(tmp_path, "print(slots.warning)").strip() == ""


def test_a_container_does_not_start_when_its_slot_is_not_mounted(tmp_path: Path) -> None:
    settings = PluginSettings(state_dir=tmp_path, library=tmp_path / "libvgpu.so")
    settings.library.touch()
    allocations = AllocationStore(tmp_path / "allocations", RegionSlots(tmp_path / "slots"))
    allocations.load()
    allocations.slots.path("7").mkdir(parents=True)
    container = PlacedContainer("team", "p", "uid", "main", 0, (Share("GPU-0", 100, 30),), 1)
    answered = allocations.restore(
        f"a{'0' * 24}-7", ["x"], container.cards, limited=True, cdi=False
    )
    with pytest.raises(RejectedCall, match=r"slots/7 is not mounted.*restart the agent's pod"):
        assign(allocations, answered, container, settings)


def test_a_large_file_system_is_not_a_slot(tmp_path: Path) -> None:
    code = """
import subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "x", slots.path("0")], check=True)
print(*slots.mounted())
"""
    assert run_with_slots(tmp_path, code).strip() == "1"
