"""Memory of a device is charged whichever way it is taken, and given back with it.

The oracle is the stub driver, which counts the memory that it really allocated.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.builds import NATIVE
from native.harness.memory_user import MIB, environment, run

ALLOCATORS = (
    "linear",
    "managed",
    "pitch",
    "async",
    "async-ptsz",
    "async-freed-at-once",
    "pool",
    "pool-ptsz",
    "handle",
    "mapped",
    "array",
    "array3",
    "mipmapped",
)
RULES = (
    "info",
    "absurd",
    "unknown",
    "late-driver",
    "pitch",
    "pools",
    "current-pool",
    "stream-of-other-device",
    "capture",
    "capture-near-limit",
    "capture-from-pool",
    "graphs",
    "graphs-in-turn",
    "graph-unread",
    "graph-of-two-devices",
    "address-anew",
    "address-of-other-pool",
    "array-without-memory",
    "handles",
    "many-mappings",
    "handle-of-other-device",
    "exported",
    "contexts",
    "host",
)

Program = Callable[[str], Path]


@pytest.fixture(params=["native", "shipped"])
def each_build(request: pytest.FixtureRequest) -> Path:
    """Return the directory of the checked build, and of the build that ships."""
    build: Path = request.getfixturevalue(request.param)
    return build


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_each_allocator_gets_the_limit_and_no_more(
    allocator: str, each_build: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(each_build, tmp_path, "100m")
    run(environ, program("memory_limit"), allocator, str(3 * MIB))


def test_small_blocks_fill_the_limit_to_the_last_one(
    native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "1m")
    assert int(run(environ, program("memory_limit"), "linear", "1000")) == MIB // 1024


@pytest.mark.parametrize("rule", RULES)
def test_the_charge_follows_the_rule(
    rule: str, native: Path, program: Program, tmp_path: Path
) -> None:
    run(environment(native, tmp_path, "100m"), program("memory_rules"), rule)


def test_memory_freed_in_a_stream_is_charged_until_the_stream_reaches_it(
    native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_FREE_IN_ORDER="1")
    run(environ, program("memory_rules"), "freed-in-order")


@pytest.mark.parametrize("version", ["11040", "12000"])
@pytest.mark.parametrize("rule", ["pools", "current-pool", "stream-of-other-device", "handles"])
def test_older_drivers_are_called_by_their_own_functions(
    version: str, rule: str, native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_VERSION=version)
    run(environ, program("memory_rules"), rule)


@pytest.mark.parametrize("rule", ["contexts", "context-now"])
def test_memory_ends_with_its_context_when_there_is_one_device(
    rule: str, native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_DEVICES="1")
    run(environ, program("memory_rules"), rule)


def test_memory_stays_charged_when_a_context_reuses_the_primary_address(
    native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_CONTEXT_ANEW="1")
    run(environ, program("memory_rules"), "context-anew")


ASK_FOR_A_NEWER_FORM = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
name, way, found = b"cuGetProcAddress", ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuGetProcAddress(name, ctypes.byref(way), 12000, ctypes.c_uint64(0)) == 0
takes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
kind = ctypes.CFUNCTYPE(ctypes.c_int, *takes)
assert kind(way.value)(b"cuMemAlloc", ctypes.addressof(found), 12000, 0) == 0
assert found.value == ctypes.cast(cuda.cuMemAlloc_v2, ctypes.c_void_p).value
"""


def test_an_older_driver_asked_for_a_newer_cuGetProcAddress_gives_its_own(  # noqa: N802
    native: Path, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_VERSION="11080")
    run(environ, Path(sys.executable), "-c", ASK_FOR_A_NEWER_FORM)


@pytest.mark.parametrize("what", ["procaddress", "graph"])
def test_functions_are_hooked_and_graphs_counted_when_the_heap_is_short(
    what: str, native: Path, program: Program, tmp_path: Path
) -> None:
    run(environment(native, tmp_path, "100m"), program("without_memory"), what)


@pytest.mark.parametrize("limit", ["60m", "200m", "0"])
@pytest.mark.parametrize("seed", range(4))
def test_no_order_of_allocators_is_charged_less_than_it_takes(
    seed: int, limit: str, native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, limit)
    refused = int(run(environ, program("memory_random"), str(seed), "5000"))
    assert (refused > 50) == (limit != "0")  # the stub itself refuses a few small managed blocks


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_free_memory_of_others_leave_nothing_charged(
    seed: int, native: Path, program: Program, tmp_path: Path
) -> None:
    run(environment(native, tmp_path, "200m"), program("memory_threads"), str(seed))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_no_order_of_allocators_is_charged_less_in_a_long_campaign(
    seed: int, native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, f"{50 + seed * 3}m")
    run(environ, program("memory_random"), str(seed), "300000")


@pytest.mark.parametrize("what", ["contexts", "pools", "graphs"])
def test_a_thread_keeps_no_lock_and_no_memory_when_cancelled_in_the_driver(
    what: str, native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_DELAY_NS="300000")
    run(environ, program("cancelled"), what)


def test_a_thread_keeps_no_memory_when_cancelled_between_two_tries(
    native: Path, program: Program, tmp_path: Path
) -> None:
    environ = environment(native, tmp_path, "100m", VGPU_STUB_MEMORY=str(30 * MIB))
    run(environ, program("cancelled"), "refused")


def compiled_map(path: Path, *flags: str) -> Path:
    """Build the test of the map for itself, with a sanitizer."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = NATIVE / "tests" / "programs" / "map_model.c"
    command = [
        compiler,
        "-std=gnu11",
        "-g",
        "-O1",
        "-pthread",
        *flags,
        "-iquote",
        str(NATIVE / "src"),
        str(source),
        "-o",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "cannot find" in done.stderr and "san" in done.stderr:
        pytest.skip("the compiler has no such sanitizer")
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_the_map_agrees_with_a_list_and_its_threads_with_one_another(
    sanitizer: str, tmp_path: Path
) -> None:
    program = compiled_map(tmp_path / "map", f"-fsanitize={sanitizer}")
    for seed in range(3):
        run({}, program, str(seed))


def test_a_map_without_locks_is_detected(tmp_path: Path) -> None:
    unlocked = "-D__atomic_exchange_n(at,value,order)=(0)"
    program = compiled_map(tmp_path / "map", "-fsanitize=thread", unlocked)
    done = subprocess.run([program, "1"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
