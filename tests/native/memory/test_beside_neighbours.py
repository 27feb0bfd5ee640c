"""Other containers start and allocate on the same card meanwhile, at no cost to this one.

NVML lists pids of the host, which differ from those that the processes have themselves.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from native.harness.card_user import OUT, CardUser
from native.harness.memory_user import MIB, OUT_OF_MEMORY, environment, run

from vgpu_native.shared import usage_region

Program = Callable[[str], Path]

CONTEXT = 20 * MIB
MODULE = 3 * MIB
SIZES = {"VGPU_STUB_CONTEXT_BYTES": "20m", "VGPU_STUB_MODULE_BYTES": "3m"}
HOST = {"VGPU_STUB_PID_OFFSET": "100000", "VGPU_STUB_DEVICES": "1"}
LIMIT = 100
MALLOC_HEAP, HEAP_MIB = 2, 8  # the number of the limit, and its value in a new context

NEIGHBOUR = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
size = ctypes.c_size_t(1 << 30)
print(flush=True)
while cuda.cuMemAlloc_v2(ctypes.byref(at), size) == 0 and cuda.cuMemFree_v2(at) == 0: pass
"""


@contextmanager
def neighbour(environ: dict[str, str]) -> Iterator[None]:
    """Allocate and free 1 GiB all the time, in a container without limits."""
    free = {name: value for name, value in environ.items() if name != "LD_PRELOAD"}
    process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], env=free, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Tenant:
    """A container with a region of its own, on the card of all."""

    def __init__(self, native: Path, folder: Path, number: int, **settings: str) -> None:
        """Start its process."""
        own = folder / str(number)
        own.mkdir()
        machine = {"VGPU_STUB_STATE": str(folder / "machine"), **SIZES, **HOST, **settings}
        machine["VGPU_STUB_CONTEXT_BYTES"] = str(CONTEXT + number * MIB)
        environ = environment(native, own, f"{LIMIT}m", **machine)
        preload = environ.pop("LD_PRELOAD")
        self.region = own / "region"
        self.user = CardUser(native / "stub", environ, begin=False, preload=preload)

    def charged(self) -> int:
        """Return the bytes that the container is charged."""
        return usage_region.read(self.region).devices[0].memory


@contextmanager
def tenants(native: Path, folder: Path, count: int, **settings: str) -> Iterator[list[Tenant]]:
    """Start containers whose contexts are created at the same moment."""
    with ExitStack() as stack:
        all_ = [Tenant(native, folder, number, **settings) for number in range(count)]
        for tenant in all_:
            stack.callback(tenant.user.end)
            tenant.user.ok("cuInit", 0)
        for tenant in all_:
            tenant.user.send("cuDevicePrimaryCtxRetain", OUT, 0)
        for tenant in all_:
            assert tenant.user.answer() == 0, "it fits"
            tenant.user.ok("cuCtxSetCurrent", tenant.user.word())
        yield all_


@pytest.fixture
def machine(native: Path, tmp_path: Path) -> dict[str, str]:
    """Return the environment of processes of the card."""
    return environment(native, tmp_path, f"{LIMIT}m", **SIZES, **HOST)


def test_a_process_is_charged_its_own_beside_a_busy_neighbour(
    native: Path, machine: dict[str, str], tmp_path: Path
) -> None:
    with neighbour(machine), tenants(native, tmp_path, 1) as (tenant,):
        assert tenant.charged() == CONTEXT
        for number in range(1, 11):
            tenant.user.ok("cuModuleLoadData", OUT, 0)
            assert tenant.charged() == CONTEXT + number * MODULE


def test_contexts_of_one_moment_are_charged_to_their_own_containers(
    native: Path, machine: dict[str, str], tmp_path: Path
) -> None:
    """A call takes 2 ms, so that all eight creations overlap. Their contexts differ in size."""
    with neighbour(machine), tenants(native, tmp_path, 8, VGPU_STUB_DELAY_NS="2000000") as all_:
        sizes = [CONTEXT + number * MIB for number in range(8)]
        assert [tenant.charged() for tenant in all_] == sizes
        for tenant, size in zip(all_, sizes, strict=True):
            tenant.user.ok("cuModuleLoadData", OUT, 0)
            assert tenant.charged() == size + MODULE


def test_rules_of_contexts_hold_when_the_driver_lists_other_pids(
    program: Program, machine: dict[str, str]
) -> None:
    run(machine, program("memory_rules"), "context-sizes")


@pytest.mark.parametrize("hide", ["1", "2"], ids=["no list", "no figures"])
def test_nothing_is_charged_when_the_driver_names_no_own_memory(
    hide: str, native: Path, machine: dict[str, str], tmp_path: Path
) -> None:
    settings = {"VGPU_STUB_HIDE_PROCESSES": hide}
    with neighbour(machine), tenants(native, tmp_path, 2, **settings) as all_:
        for tenant in all_:
            tenant.user.ok("cuModuleLoadData", OUT, 0)
        assert [tenant.charged() for tenant in all_] == [0, 0]


@pytest.mark.parametrize("hide", ["0", "1"], ids=["listed", "no list"])
def test_a_limit_that_rises_again_and_again_is_charged_once(
    hide: str, native: Path, tmp_path: Path
) -> None:
    """Without a list it is unknown whether memory was given back: the highest value counts."""
    settings = {"VGPU_STUB_HIDE_PROCESSES": hide, "VGPU_STUB_CONTEXT_ANEW": "1"}
    with tenants(native, tmp_path, 1, **settings) as (tenant,):
        before, highest = tenant.charged(), 0
        for mib in (38, 8, 38, 8, 58, 28, 48):
            tenant.user.ok("cuCtxSetLimit", MALLOC_HEAP, mib * MIB)
            highest = max(highest, mib - HEAP_MIB)
            held = mib - HEAP_MIB if hide == "0" else highest
            assert tenant.charged() - before == held * MIB
        tenant.user.ok("cuDevicePrimaryCtxReset_v2", 0)
        tenant.user.ok("cuDevicePrimaryCtxRetain", OUT, 0)
        tenant.user.ok("cuCtxSetCurrent", tenant.user.word())
        tenant.user.ok("cuCtxSetLimit", MALLOC_HEAP, 38 * MIB)
        assert tenant.charged() - before == (38 - HEAP_MIB) * MIB, "a context of the same address"


SAME_PID = """
import ctypes, os, sys
os.environ["VGPU_STUB_PID_OFFSET"] = str(os.getpid() - int(sys.argv[1]))
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(total.value - free.value)
"""


def test_a_pid_of_the_host_that_equals_the_own_is_another_process(
    native: Path, machine: dict[str, str], tmp_path: Path
) -> None:
    with tenants(native, tmp_path, 1) as (other,):
        pid = str(other.user.pid)
        used = run(machine, Path(sys.executable), "-c", SAME_PID, pid)
        assert int(used) == CONTEXT


def test_a_context_is_refused_when_no_probe_finds_its_process(native: Path, tmp_path: Path) -> None:
    """The limit leaves no room for a probe. The smallest new process has 20 MiB."""
    settings = {"CUDA_DEVICE_MEMORY_LIMIT": "1m", "VGPU_STUB_DELAY_NS": "2000000"}
    with ExitStack() as stack:
        all_ = [Tenant(native, tmp_path, number, **settings) for number in range(4)]
        for tenant in all_:
            stack.callback(tenant.user.end)
            tenant.user.ok("cuInit", 0)
        for tenant in all_:
            tenant.user.send("cuDevicePrimaryCtxRetain", OUT, 0)
        assert [tenant.user.answer() for tenant in all_] == [OUT_OF_MEMORY] * 4


def test_a_process_alone_is_found_without_taking_memory(native: Path, tmp_path: Path) -> None:
    counts = []
    for number, offset in enumerate(("0", "100000")):
        tenant = Tenant(native, tmp_path, number, VGPU_STUB_PID_OFFSET=offset)
        tenant.user.begin()
        tenant.user.ok("cuModuleLoadData", OUT, 0)
        assert tenant.charged() == CONTEXT + number * MIB + MODULE
        counts.append(tenant.user.call("vgpu_stub_calls", "cuMemAlloc_v2"))
        tenant.user.end()
    assert counts[0] == counts[1] > 0


UNSEEN = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, more = ctypes.c_void_p(), ctypes.c_void_p()
cuda.vgpu_stub_address.restype = ctypes.c_uint64
unseen = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(
    cuda.vgpu_stub_address(b"cuDevicePrimaryCtxRetain")
)
assert cuda.cuInit(0) == 0 and unseen(ctypes.addressof(context), 0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(more), 0, 0) == 0
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(total.value - free.value)
"""


def test_a_process_is_found_when_it_had_a_context_that_no_hook_saw(
    native: Path, machine: dict[str, str], tmp_path: Path
) -> None:
    with neighbour(machine):
        assert int(run(machine, Path(sys.executable), "-c", UNSEEN)) == CONTEXT


def test_a_context_that_does_not_fit_is_refused_beside_a_neighbour(
    native: Path, machine: dict[str, str], tmp_path: Path
) -> None:
    with neighbour(machine), tenants(native, tmp_path, 1) as (tenant,):
        answers = [tenant.user.call("cuCtxCreate_v2", OUT, 0, 0) for _ in range(LIMIT // 20)]
        assert answers == [0, 0, 0, 0, OUT_OF_MEMORY]
        assert tenant.charged() == LIMIT * MIB
