"""Memory of contexts: what ends with them, and what they take themselves."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.memory_user import MIB, OUT_OF_MEMORY, Shell, environment, run

from vgpu_native.shared import limits_page, usage_region
from vgpu_native.shared.limits_page import ContainerLimits, DeviceLimits, flags_of

Program = Callable[[str], Path]

IN_CONTEXT = {"VGPU_STUB_ASK_IN_CONTEXT": "1"}
SIZES = {"VGPU_STUB_CONTEXT_BYTES": "20m", "VGPU_STUB_MODULE_BYTES": "3m"}
KEEPS = {"VGPU_STUB_GREEN_KEEPS": "1"}


@pytest.mark.parametrize("settings", [{}, KEEPS, IN_CONTEXT], ids=["ends", "kept", "in context"])
def test_memory_of_a_green_context_is_charged_while_the_driver_has_it(
    settings: dict[str, str], native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_DEVICES="1", **settings)
    run(environ, program("memory_rules"), "green-memory")


@pytest.mark.parametrize("settings", [{}, IN_CONTEXT], ids=["at once", "in context"])
def test_memory_ends_with_a_primary_context_that_no_hook_saw(
    settings: dict[str, str], native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_DEVICES="1", **settings)
    run(environ, program("memory_rules"), "unseen-primary")


def test_contexts_code_and_their_limits_are_charged_while_they_live(
    native: Path, program: Program, tmp_path: Path
) -> None:
    sizes = {**SIZES, "VGPU_STUB_DEVICES": "1"}
    run(environment(native, tmp_path, "100m", **sizes), program("memory_rules"), "context-sizes")


def test_contexts_and_code_do_not_count_when_the_page_exempts_them(
    native: Path, program: Program, tmp_path: Path
) -> None:
    devices = (DeviceLimits("GPU-00000000-0000-0000-0000-000000000000", 100 * MIB),)
    flags = flags_of(contexts_exempt=True)
    limits_page.write(tmp_path / "limits", ContainerLimits(devices, flags=flags))
    page = {"GPULEDGER_LIMITS_FILE": str(tmp_path / "limits"), "VGPU_STUB_DEVICES": "1"}
    environ = environment(native, tmp_path, "0", **SIZES, **page)
    run(environ, program("memory_rules"), "contexts-exempt")


RETAIN = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
print(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
cuda.vgpu_stub_used.restype = ctypes.c_uint64
print(cuda.vgpu_stub_used(0))
"""


@pytest.mark.parametrize(("limit", "answer"), [("19m", OUT_OF_MEMORY), ("20m", 0)])
def test_a_context_is_refused_when_it_does_not_fit(
    limit: str, answer: int, native: Path, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, limit, **SIZES)
    said = run(environ, Path(sys.executable), "-c", RETAIN).split()
    assert said == [str(answer), str(0 if answer else 20 * MIB)]


def test_the_context_of_a_killed_process_counts_no_longer(
    native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", **SIZES)
    with Shell(environ, program("memory_shell")) as first:
        assert first.info() == (80 * MIB, 100 * MIB)
        with Shell(environ, program("memory_shell")) as second:
            assert second.info() == (60 * MIB, 100 * MIB)
            assert usage_region.read(tmp_path / "region").devices[0].memory == 40 * MIB
            assert first.take(61 * MIB) == OUT_OF_MEMORY
        assert first.take(80 * MIB) == 0
