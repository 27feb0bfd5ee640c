"""NVML's numbers of a device's memory are the container's; all else of NVML is as it was."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.memory_user import MIB, environment, run

from vgpu_native.shared import limits_page
from vgpu_native.shared.limits_page import ContainerLimits, DeviceLimits

UUID = "GPU-00000000-0000-0000-0000-00000000000"
SHOW = """
import pynvml
pynvml.nvmlInit()
for index in range(2):
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    for memory in (
        pynvml.nvmlDeviceGetMemoryInfo(device),
        pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2),
    ):
        print(memory.total >> 20, memory.free >> 20, memory.used >> 20)
    print(pynvml.nvmlDeviceGetBAR1MemoryInfo(device).bar1Total >> 20)
    print(len(pynvml.nvmlDeviceGetComputeRunningProcesses(device)))
"""
HOLD = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(20 << 20)) == 0
"""

Say = Callable[..., list[list[int]]]


@pytest.fixture
def say(native: Path, tmp_path: Path) -> Say:
    """Return a function that runs Python in the container and returns the printed numbers."""

    def numbers(script: str, limit: str, **settings: str) -> list[list[int]]:
        environ = environment(native, tmp_path, limit, VGPU_STUB_MEMORY="500m", **settings)
        said = run(environ, Path(sys.executable), "-W", "ignore", "-c", script)
        return [[int(word) for word in line.split()] for line in said.splitlines()]

    return numbers


def test_a_tool_that_uses_only_nvml_sees_the_share(say: Say) -> None:
    limits = {"CUDA_DEVICE_MEMORY_LIMIT_0": "100m", "CUDA_DEVICE_MEMORY_LIMIT_1": "200m"}
    first, first_v2, _, _, second, second_v2, _, _ = say(SHOW, "0", **limits)
    assert first == first_v2 == [100, 100, 0]
    assert second == second_v2 == [200, 200, 0]


def test_memory_allocated_by_cuda_is_used_in_nvml(say: Say) -> None:
    first, _, _, _, second, second_v2, _, processes = say(HOLD + SHOW, "100m")
    assert first == [100, 100, 0]
    assert second == second_v2 == [100, 80, 20]
    assert processes == [1]


def test_other_nvml_numbers_are_unchanged(say: Say) -> None:
    limited = say(SHOW, "100m")
    whole = say(SHOW, "100m", LD_PRELOAD="")
    assert limited[2] == whole[2]
    assert limited[3] == whole[3]
    assert limited[0] != whole[0]


def test_nvml_is_unchanged_when_there_is_no_limit(say: Say) -> None:
    assert say(HOLD + SHOW, "0") == say(HOLD + SHOW, "0", LD_PRELOAD="")


def test_devices_of_a_page_are_found_by_their_uuid(say: Say, tmp_path: Path) -> None:
    path = tmp_path / "limits"
    devices = (DeviceLimits(f"{UUID}1", 70 * MIB), DeviceLimits(f"{UUID}0", 50 * MIB))
    limits_page.write(path, ContainerLimits(devices))
    said = say(SHOW, "0", GPULEDGER_LIMITS_FILE=str(path))
    assert said[0] == [50, 50, 0]
    assert said[4] == [70, 70, 0]
