"""The region's file: made whole, shared, refused when it is another thing, and never in the way."""

import contextlib
import fcntl
import os
import random
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from native.harness.core_programs import MIB, UUID, Ledger

from vgpu_native.shared import usage_region
from vgpu_native.shared.binary_fields import place
from vgpu_native.shared.layout import (
    DEVICES_MAX,
    MAY_DISABLE,
    REGION,
    REGION_SIZE,
    USED_AT,
    USES,
    VERSION,
)
from vgpu_native.shared.limits_page import ContainerLimits, DeviceLimits, encode

GENERATION = place(REGION["generation"])
ASK = ("reserve", "600m", "reserve", "600m", "used")
LIMITED = [1, 0, 600 * MIB]
"""The answers to a process with a region of its own, or to the first of its container."""


@pytest.fixture
def ledger(tmp_path: Path, core_program: Callable[[str], Path]) -> Ledger:
    return Ledger(tmp_path, core_program, {"CUDA_DEVICE_MEMORY_LIMIT": "1000m"})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a directory with room for 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place))
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here; it takes root")
    yield place
    subprocess.run(("umount", str(place)), check=True)


def made(ledger: Ledger) -> bytes:
    """Return a region as the library makes it."""
    ledger.ask("ready")
    return ledger.region.read_bytes()


def refused(ledger: Ledger, said: str) -> None:
    """Check that a process is limited although its region is refused, and logs that once."""
    done = ledger.run("ask", *ASK)
    assert [int(line) for line in done.stdout.split()] == LIMITED
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_new_region_is_complete_and_the_only_file(ledger: Ledger) -> None:
    assert len(made(ledger)) == REGION_SIZE
    assert [each.name for each in ledger.directory.iterdir()] == ["region"]


def test_the_agent_reads_what_processes_use(ledger: Ledger) -> None:
    with ledger.talking("reserve", "600m", "device", 3, "reserve", "5m", "wait") as process:
        assert process.answers(2) == [1, 1]
        usage = usage_region.read(ledger.region)
        assert [device.uuid for device in usage.devices] == [UUID.format(0), UUID.format(3)]
        assert [device.memory for device in usage.devices] == [600 * MIB, 5 * MIB]
        assert [user.pid for user in usage.processes] == [process.pid]
    assert usage_region.read(ledger.region).devices[0].memory == 0


def test_processes_of_any_user_may_share_the_region(ledger: Ledger) -> None:
    before = os.umask(0o077)
    try:
        made(ledger)
    finally:
        os.umask(before)
    assert ledger.region.stat().st_mode & 0o777 == 0o666


def test_the_region_is_per_user_when_no_path_is_set(ledger: Ledger) -> None:
    region = Path(f"/tmp/gpuledger.{os.geteuid()}.v{VERSION}.region")
    before = region.exists()
    done = ledger.run("ask", "ready", CUDA_DEVICE_MEMORY_SHARED_CACHE="")
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert region.stat().st_mode & 0o777 == 0o600
    if not before:
        region.unlink()


@pytest.fixture
def container(tmp_path: Path) -> Callable[[int], list[str]]:
    """Return the command that runs a program where a limits page with these flags is mounted."""
    page, script = tmp_path / "limits", tmp_path / "enter.sh"
    script.write_text(_ENTER)

    def entering(flags: int) -> list[str]:
        page.write_bytes(
            encode(ContainerLimits((DeviceLimits(UUID.format(0), 1000 * MIB),), flags=flags))
        )
        return ["unshare", "--mount", "sh", str(script), str(page)]

    if os.geteuid() or subprocess.run([*entering(0), "true"], check=False).returncode:
        pytest.skip("no mount namespace can be made here; it takes root")
    return entering


_ENTER = """set -eu
page=$(mktemp) && cat "$1" >"$page" && shift
mount -t tmpfs none /etc && mkdir /etc/gpuledger && cat "$page" >/etc/gpuledger/limits
rm "$page"
mount -t tmpfs none /run && mkdir /run/gpuledger
"$@"
ls /run/gpuledger
"""


@pytest.mark.parametrize(("flags", "allowed"), [(0, False), (MAY_DISABLE, True)])
def test_a_mounted_page_decides_the_region_unless_it_may_disable_limits(
    ledger: Ledger, container: Callable[[int], list[str]], flags: int, allowed: bool
) -> None:
    program = str(ledger.built("plain/ask"))
    done = subprocess.run(
        [*container(flags), program, *ASK],
        env=ledger.settings(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [*map(str, LIMITED), *([] if allowed else ["region"])]
    assert ledger.region.exists() == allowed
    assert ("SHARED_CACHE has no effect" in done.stderr) != allowed


@pytest.mark.parametrize(
    ("flags", "answers", "said"),
    [
        (0, ["0", "0", "0", "0"], "no memory is given"),
        (MAY_DISABLE, [*map(str, LIMITED), str(1000 * MIB)], "this process is limited by itself"),
    ],
)
def test_no_memory_is_granted_under_a_mounted_page_without_a_region(
    ledger: Ledger,
    container: Callable[[int], list[str]],
    flags: int,
    answers: list[str],
    said: str,
) -> None:
    ledger.region.write_bytes(b"no region")
    broken = 'echo none >/run/gpuledger/region; "$@"; rm /run/gpuledger/region'
    command = [*container(flags), "sh", "-c", broken, "sh", str(ledger.built("plain/ask"))]
    done = subprocess.run(
        [*command, *ASK, "limit"],
        env=ledger.settings(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == answers
    assert f"is refused as region: its size is another; {said}." in done.stderr


def test_a_process_is_limited_and_survives_when_files_must_be_small(
    ledger: Ledger,
) -> None:
    command = ["sh", "-c", 'ulimit -f 8 && exec "$@"', "sh", str(ledger.built("plain/ask"))]
    done = subprocess.run(
        [*command, *ASK], env=ledger.settings(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, [*map(str, LIMITED)])
    assert "File too large" in done.stderr
    assert list(ledger.directory.iterdir()) == []


def test_a_directory_means_the_region_in_it(ledger: Ledger) -> None:
    assert ledger.ask(*ASK, CUDA_DEVICE_MEMORY_SHARED_CACHE=str(ledger.directory)) == LIMITED
    assert ledger.region.stat().st_size == REGION_SIZE


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "its size is another"),
        (b"x" * 100, "its size is another"),
        (bytes(REGION_SIZE), "it is something else"),
        (b"\xff" * REGION_SIZE, "it is something else"),
        (bytes(REGION_SIZE + 1), "its size is another"),
    ],
)
def test_a_file_that_is_not_a_region_is_refused_and_kept(
    ledger: Ledger, content: bytes, said: str
) -> None:
    ledger.region.write_bytes(content)
    refused(ledger, said)
    assert ledger.region.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("version", "it is of another version"),
        ("slots", "its parts have other sizes"),
        ("slot_size", "its parts have other sizes"),
        ("size", "its parts have other sizes"),
    ],
)
def test_a_region_of_another_kind_is_refused(ledger: Ledger, name: str, said: str) -> None:
    content = bytearray(made(ledger))
    struct.pack_into("<I", content, place(REGION[name]), 77)
    ledger.region.write_bytes(content)
    refused(ledger, said)


@pytest.mark.timeout(30)
def test_a_pipe_a_device_and_a_directory_that_is_missing_are_refused(ledger: Ledger) -> None:
    os.mkfifo(ledger.region)
    refused(ledger, "it is not a file")
    ledger.region.unlink()
    ledger.region.symlink_to("/dev/zero")
    refused(ledger, "it is not a file")
    ledger.region.unlink()
    ledger.region.symlink_to(ledger.directory / "missing" / "region")
    refused(ledger, "cannot be used as region")


def test_a_full_disk_is_an_error_and_no_signal(ledger: Ledger, small_disk: Path) -> None:
    done = ledger.run("ask", *ASK, CUDA_DEVICE_MEMORY_SHARED_CACHE=str(small_disk / "region"))
    assert [int(line) for line in done.stdout.split()] == LIMITED
    assert "No space left" in done.stderr
    assert not list(small_disk.iterdir())


def test_a_disk_that_cannot_be_written_is_an_error(ledger: Ledger, small_disk: Path) -> None:
    subprocess.run(("mount", "-o", "remount,ro", str(small_disk)), check=True)
    done = ledger.run("ask", *ASK, CUDA_DEVICE_MEMORY_SHARED_CACHE=str(small_disk))
    assert [int(line) for line in done.stdout.split()] == LIMITED
    assert "Read-only" in done.stderr


def test_a_region_of_an_earlier_boot_is_replaced_once_for_all_processes(ledger: Ledger) -> None:
    content = bytearray(made(ledger))
    content[USED_AT:] = b"\x11" * (REGION_SIZE - USED_AT)
    struct.pack_into("<Q", content, GENERATION, 1)
    for _ in range(10):
        ledger.region.unlink()
        ledger.region.write_bytes(content)
        check_together(ledger, 6)
        assert [each.name for each in ledger.directory.iterdir()] == ["region"]


def check_together(ledger: Ledger, count: int) -> None:
    """Check that all who begin at once see what all hold."""
    with contextlib.ExitStack() as stack:
        words = ("reserve", "10m", "wait", "used", "wait")
        together = [stack.enter_context(ledger.talking(*words)) for _ in range(count)]
        assert [process.answers(1) for process in together] == [[1]] * count
        for process in together:
            process.go_on()
        assert [process.answers(1) for process in together] == [[count * 10 * MIB]] * count


@pytest.mark.timeout(30)
def test_a_lock_that_is_never_released_delays_only_briefly(ledger: Ledger) -> None:
    content = bytearray(made(ledger))
    struct.pack_into("<Q", content, GENERATION, 1)
    ledger.region.write_bytes(content)
    with ledger.region.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        began = time.monotonic()
        refused(ledger, "cannot be used as region")
        assert time.monotonic() - began < 5


def test_overflowing_counts_and_a_huge_slot_number_are_harmless(ledger: Ledger) -> None:
    content = bytearray(made(ledger))
    content[USED_AT:] = b"\xff" * (REGION_SIZE - USED_AT)
    struct.pack_into("<Q", content, place(REGION["high"]), 2**64 - 1)
    ledger.region.write_bytes(content)
    assert ledger.ask(*ASK) == LIMITED, "slots whose owners have died count nothing"


def test_a_false_usage_harms_only_its_own_container(ledger: Ledger) -> None:
    with ledger.talking("charge", 2**60, "used", "wait") as process:
        assert process.answers(1) == [2**55]
        assert ledger.ask("used", "reserve", "1m", "device", 1, "reserve", "1m") == [2**55, 0, 1]
    assert ledger.ask("reserve", "1000m") == [1]


def test_an_overflowing_sum_of_slots_counts_as_too_much(ledger: Ledger) -> None:
    with (
        ledger.talking("reserve", "1m", "wait") as process,
        ledger.talking("used", "wait") as other,
    ):
        assert process.answers(1) + other.answers(1)
        with ledger.region.open("r+b") as file:
            for slot in (0, 1):
                file.seek(place(REGION["used"]) + place(USES["slot"], slot))
                file.write((2**63).to_bytes(8, "little"))
        assert ledger.ask("reserve", "1m", "used") == [0, 2**64 - 1]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_no_process_crashes_or_exceeds_its_limit_when_a_tenant_scribbles(
    ledger: Ledger, seed: int
) -> None:
    numbers, good = random.Random(seed), made(ledger)
    words = ("reserve", "600m", *ASK, "limit", "device", 1, "reserve", "5m", "used")
    for _ in range(30 if seed == 1 else 2000):
        ledger.region.write_bytes(scribbled(good, numbers))
        done = ledger.run("ask", *words, kind="shipped-address", ASAN_OPTIONS="detect_leaks=0")
        granted = [int(line) for line in done.stdout.split()][:3]
        assert sum(granted) <= 1, "600 MiB fit once, or never beside a lie"


def scribbled(good: bytes, numbers: random.Random) -> bytes:
    """Return a region with some words changed, but none that identify it as a region."""
    content, odd = bytearray(good), (0, 1, 2**30, 2**31, 2**63, 2**64 - 1)
    for _ in range(numbers.choice((1, 5, 50, 2000))):
        end = numbers.choice((1100, USED_AT + 2000, REGION_SIZE))
        at = numbers.randrange(place(REGION["generation"]) + 8, end - 8)
        number = numbers.choice((*odd, numbers.randrange(2**64)))
        content[at : at + 8] = number.to_bytes(8, "little")
    return bytes(content)


def test_a_contention_gate_that_is_held_for_ever_is_ignored(ledger: Ledger) -> None:
    content = bytearray(made(ledger))
    struct.pack_into("<Q", content, place(REGION["gate"]), 2**63)
    ledger.region.write_bytes(content)
    refusals = 100
    began = time.monotonic()
    answers = ledger.ask("reserve", "600m", *("reserve", "600m") * refusals)
    assert answers == [1] + [0] * refusals
    assert time.monotonic() - began < 2.5, "each of them waited until it stopped believing"


def test_places_of_devices_with_garbage_are_skipped(ledger: Ledger) -> None:
    content = bytearray(made(ledger))
    start, end = place(REGION["uuid"]), place(REGION["budget"])
    content[start:end] = b"x" * (end - start)
    ledger.region.write_bytes(content)
    done = ledger.run("ask", "entry", "limit", "reserve", "1", "used", "cores")
    assert done.stdout.split() == ["16", "0", "0", "0", "100"]
    assert "the region has no place for it" in done.stderr


def test_a_half_written_uuid_is_completed_or_skipped(ledger: Ledger) -> None:
    content = bytearray(made(ledger))
    start = place(REGION["uuid"])
    content[start : start + 48] = b"GPU-0000".ljust(48, b"\0")
    content[start + 48 : start + 96] = b"GPU-ffff".ljust(48, b"\0")
    ledger.region.write_bytes(content)
    words = ("entry", "device", 1, "entry", "device", 2, "entry", "device", 1, "entry")
    assert ledger.ask(*words) == [0, 2, 3, 2]


def test_a_child_of_a_fork_keeps_its_entries_in_another_region(ledger: Ledger) -> None:
    with ledger.talking("device", 1, "wait", "fork", "entry", "reserve", "600m", "wait") as process:
        ledger.ask("ready")
        ledger.region.unlink()
        ledger.region.mkdir()
        (ledger.region / "region").write_bytes(b"none, so that the child is alone")
        process.go_on()
        assert process.answers(2) == [1, 1]


def give_place_1_to_device_9(ledger: Ledger) -> None:
    """Replace the region by another whose place of device 1 is that of device 9."""
    content = bytearray(ledger.region.read_bytes())
    start = place(REGION["uuid"], 1)
    content[start : start + 48] = UUID.format(9).encode().ljust(48, b"\0")
    ledger.region.unlink()
    ledger.region.write_bytes(content)


def test_a_later_device_does_not_take_the_entry_of_a_denied_one(ledger: Ledger) -> None:
    """After a fork with another region, whose place of the known device is that of another."""
    words = ("device", 1, "wait", "fork", "reserve", "1", "device", 9, "entry", "reserve", "1m")
    with ledger.talking(*words, "device", 1, "reserve", "1", "wait") as process:
        ledger.ask("ready")
        give_place_1_to_device_9(ledger)
        process.go_on()
        assert process.answers(4) == [0, DEVICES_MAX, 0, 0]


def test_a_device_gets_no_memory_when_its_entry_changed_after_a_fork(ledger: Ledger) -> None:
    with ledger.talking("device", 1, "wait", "fork", "reserve", "1", "limit", "wait") as process:
        ledger.ask("ready")
        give_place_1_to_device_9(ledger)
        process.go_on()
        assert process.answers(2) == [0, 0]
