"""Several processes of a container share its limits, which change while they run."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.memory_user import MIB, OUT_OF_MEMORY, Shell, environment, run

from vgpu_native.shared import limits_page
from vgpu_native.shared.limits_page import ContainerLimits, DeviceLimits, LimitsPage

Program = Callable[[str], Path]
UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in range(2))


@pytest.fixture
def shell(native: Path, program: Program, tmp_path: Path) -> Callable[..., Shell]:
    """Return a function that starts a process of one container, under 100 MiB by default."""

    def started(limit: str = "100m", ordinal: int = 0, **settings: str) -> Shell:
        environ = environment(native, tmp_path, limit, **settings)
        return Shell(environ, program("memory_shell"), ordinal)

    return started


def page_with(path: Path, memory: tuple[int, ...], flags: int = 0) -> Path:
    """Write a limits page for the first devices."""
    devices = tuple(DeviceLimits(uuid, amount) for uuid, amount in zip(UUIDS, memory, strict=False))
    limits_page.write(path, ContainerLimits(devices, flags=flags))
    return path


def test_cuda_and_nvml_report_the_same_share(shell: Callable[..., Shell]) -> None:
    with shell() as process:
        assert process.info() == (100 * MIB, 100 * MIB)
        assert process.take(30 * MIB) == 0
        assert process.info() == (70 * MIB, 100 * MIB)
        assert process.take(40 * MIB, "mapped") == 0
        assert process.info() == (30 * MIB, 100 * MIB)
        assert process.give() == 0
        assert process.give() == 0
        assert process.info() == (100 * MIB, 100 * MIB)


def test_a_card_without_a_limit_is_reported_unchanged(shell: Callable[..., Shell]) -> None:
    with shell("0", VGPU_STUB_MEMORY="500m") as process:
        assert process.take(30 * MIB) == 0
        assert process.info() == (470 * MIB, 500 * MIB)


def test_the_reported_free_memory_is_at_most_the_cards(shell: Callable[..., Shell]) -> None:
    with shell("100m", VGPU_STUB_MEMORY="80m") as process:
        assert process.info() == (80 * MIB, 80 * MIB)
        assert process.take(80 * MIB) == 0
        assert process.take(1 * MIB) == OUT_OF_MEMORY
        assert process.info() == (0, 80 * MIB)


def test_processes_share_one_limit_and_a_killed_one_gives_back_at_once(
    shell: Callable[..., Shell],
) -> None:
    with shell() as process, shell() as other:
        assert process.take(60 * MIB) == 0
        assert other.take(41 * MIB) == OUT_OF_MEMORY
        assert other.take(40 * MIB) == 0
        assert other.info() == process.info() == (0, 100 * MIB)
        process.kill()
        assert other.take(60 * MIB) == 0
        assert other.used() == 100 * MIB


@pytest.mark.parametrize("allocator", ["managed", "pool", "async", "handle", "mapped", "array"])
def test_a_killed_process_frees_its_memory_of_every_allocator(
    allocator: str, shell: Callable[..., Shell]
) -> None:
    with shell() as process, shell() as other:
        assert process.take(60 * MIB, allocator) == 0
        assert other.take(60 * MIB) == OUT_OF_MEMORY
        process.kill()
        assert other.take(60 * MIB) == 0


@pytest.mark.parametrize("command", ["wait", "trim"])
def test_memory_that_a_pool_trims_is_available_to_others_at_once(
    command: str, shell: Callable[..., Shell]
) -> None:
    with shell() as process, shell() as other:
        assert process.take(60 * MIB, "async") == 0
        assert process.give() == 0
        assert other.take(60 * MIB) == OUT_OF_MEMORY
        assert process.ask(command) == [0]
        assert other.take(60 * MIB) == 0


def test_each_device_has_its_own_limit(shell: Callable[..., Shell]) -> None:
    limits = {"CUDA_DEVICE_MEMORY_LIMIT_0": "50m", "CUDA_DEVICE_MEMORY_LIMIT_1": "70m"}
    with shell(**limits) as first, shell(ordinal=1, **limits) as second:
        assert first.info() == (50 * MIB, 50 * MIB)
        assert second.info() == (70 * MIB, 70 * MIB)
        assert first.take(50 * MIB) == 0
        assert second.take(70 * MIB) == 0
        assert second.take(1 * MIB) == OUT_OF_MEMORY


def test_a_changed_page_holds_at_the_next_allocation(
    shell: Callable[..., Shell], tmp_path: Path
) -> None:
    path = page_with(tmp_path / "limits", (100 * MIB, 100 * MIB))
    with shell("0", GPULEDGER_LIMITS_FILE=str(path)) as process, LimitsPage(path) as page:
        assert process.take(90 * MIB) == 0
        assert process.take(20 * MIB) == OUT_OF_MEMORY
        page.change(ContainerLimits(tuple(DeviceLimits(uuid, 120 * MIB) for uuid in UUIDS)))
        assert process.take(20 * MIB) == 0
        assert process.info() == (10 * MIB, 120 * MIB)
        page.change(ContainerLimits(tuple(DeviceLimits(uuid, 50 * MIB) for uuid in UUIDS)))
        assert process.info() == (0, 50 * MIB)
        assert process.take(1) == OUT_OF_MEMORY
        assert process.used() == 110 * MIB
        assert process.give() == 0
        assert process.take(1) == OUT_OF_MEMORY
        assert process.give() == 0
        assert process.take(50 * MIB) == 0


def test_limits_follow_the_device_and_not_its_ordinal(
    shell: Callable[..., Shell], tmp_path: Path
) -> None:
    path = tmp_path / "limits"
    devices = (DeviceLimits(UUIDS[1], 70 * MIB), DeviceLimits(UUIDS[0], 50 * MIB))
    limits_page.write(path, ContainerLimits(devices))
    with shell("0", GPULEDGER_LIMITS_FILE=str(path)) as first:
        assert first.info() == (50 * MIB, 50 * MIB)
    with shell("0", ordinal=1, GPULEDGER_LIMITS_FILE=str(path)) as second:
        assert second.info() == (70 * MIB, 70 * MIB)


def test_a_device_outside_the_page_has_no_memory(
    shell: Callable[..., Shell], tmp_path: Path
) -> None:
    path = page_with(tmp_path / "limits", (100 * MIB,))
    with shell("0", ordinal=1, GPULEDGER_LIMITS_FILE=str(path)) as stranger:
        assert stranger.info() == (0, 0)
        for allocator in ("linear", "managed", "pitch", "async", "pool", "handle", "array"):
            assert stranger.take(MIB, allocator) == OUT_OF_MEMORY
        assert stranger.used() == 0


def test_overhead_that_the_agent_measured_is_not_free(
    shell: Callable[..., Shell], tmp_path: Path
) -> None:
    path = tmp_path / "limits"
    limits_page.write(
        path, ContainerLimits((DeviceLimits(UUIDS[0], 100 * MIB, overhead=30 * MIB),))
    )
    with shell("0", GPULEDGER_LIMITS_FILE=str(path)) as process:
        assert process.info() == (70 * MIB, 100 * MIB)
        assert process.take(71 * MIB) == OUT_OF_MEMORY
        assert process.take(70 * MIB) == 0


def test_memory_beyond_the_card_is_managed_with_oversubscription(
    shell: Callable[..., Shell],
) -> None:
    small = {"VGPU_STUB_MEMORY": "64m"}
    with shell("100m", CUDA_OVERSUBSCRIBE="true", **small) as process:
        assert process.info() == (100 * MIB, 100 * MIB)
        assert process.take(60 * MIB) == 0
        assert process.take(40 * MIB) == 0
        assert process.info() == (0, 100 * MIB)
        assert process.take(1 * MIB) == OUT_OF_MEMORY
        assert process.used() <= 64 * MIB
        assert process.give() == 0
        assert process.info() == (40 * MIB, 100 * MIB)
    with shell("100m", **small) as other:
        assert other.take(60 * MIB) == 0
        assert other.take(40 * MIB) == OUT_OF_MEMORY


def test_python_is_limited_through_ctypes(native: Path, tmp_path: Path) -> None:
    script = """
import ctypes, ctypes.util
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
assert total.value == 100 << 20, total.value
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(101 << 20)) == 2
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(100 << 20)) == 0
assert cuda.cuMemFree_v2(pointer) == 0
"""
    run(environment(native, tmp_path, "100m"), Path(sys.executable), "-c", script)


def test_a_child_of_a_fork_holds_nothing_and_frees_nothing_of_its_parent(
    native: Path, tmp_path: Path
) -> None:
    script = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
def begin():
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
def free():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value >> 20
pointer, other = ctypes.c_uint64(), ctypes.c_uint64()
begin()
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(60 << 20)) == 0
child = os.fork()
if not child:
    begin()
    cuda.cuMemFree_v2(pointer)
    assert free() == 40, free()
    assert cuda.cuMemAlloc_v2(ctypes.byref(other), ctypes.c_size_t(41 << 20)) == 2
    assert cuda.cuMemAlloc_v2(ctypes.byref(other), ctypes.c_size_t(40 << 20)) == 0
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(other), ctypes.c_size_t(40 << 20)) == 0
assert free() == 0
assert cuda.cuMemFree_v2(pointer) == 0
assert free() == 60
"""
    environ = environment(native, tmp_path, "100m", VGPU_STUB_FORK="1")
    run(environ, Path(sys.executable), "-W", "ignore", "-c", script)


@pytest.mark.parametrize("machine", ["shared", "of its own"])
@pytest.mark.parametrize("limited", [True, False])
def test_a_child_can_be_forked_while_other_threads_allocate(
    limited: bool, machine: str, native: Path, program: Program, tmp_path: Path
) -> None:
    """The stub by itself, too: a lock that it kept would be taken for the library's."""
    environ = environment(native, tmp_path, "100m", VGPU_STUB_FORK="1")
    if not limited:
        del environ["LD_PRELOAD"]
    if machine != "shared":
        del environ["VGPU_STUB_STATE"]
    run(environ, program("fork_threads"), "200")


def test_a_process_gets_no_memory_when_the_owner_of_its_memory_ended(
    native: Path, program: Program, tmp_path: Path
) -> None:
    """Its slot is free, so a charge there would not count, or would count for another process."""
    environ = environment(native, tmp_path, "100m")
    assert run(environ, program("outlives")) == "0\n"
