"""The stub driver counts memory as a driver does: what all tests of limits stand on."""

import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.card_user import OUT, CardUser

MIB = 1 << 20
OUT_OF_MEMORY, INVALID_VALUE, NOT_INITIALIZED = 2, 1, 3
Users = Callable[..., CardUser]


def _property(device: int = 0, handles: int = 0) -> dict[str, str]:
    """Return the properties of pinned memory of a card, which handles of a kind may leave."""
    return {"in": struct.pack("<IIIIQQ", 1, handles, 1, device, 0, 0).hex()}


def _format(width: int, height: int, depth: int, flags: int = 0) -> dict[str, str]:
    """Return the description of an array of one 32-bit channel."""
    return {"in": struct.pack("<QQQIIII", width, height, depth, 0x20, 1, flags, 0).hex()}


def test_before_cuinit_calls_are_refused(users: Users) -> None:
    user = users(begin=False)
    assert user.call("cuMemAlloc_v2", OUT, 4096) == NOT_INITIALIZED
    assert user.ok("cuDriverGetVersion", OUT) == 13000
    user.begin()
    assert user.call("cuMemAlloc_v2", OUT, 4096) == 0


def test_without_a_context_nothing_is_allocated(users: Users) -> None:
    user = users(begin=False)
    user.ok("cuInit", 0)
    assert user.call("cuMemAlloc_v2", OUT, 4096) == 201
    assert user.call("cuMemGetInfo_v2", OUT, OUT) == 201


def test_memory_is_taken_in_pieces_of_512_bytes_and_given_back(users: Users) -> None:
    user = users()
    at = user.ok("cuMemAlloc_v2", OUT, 513)
    assert user.used() == 1024
    user.ok("cuMemFree_v2", at)
    assert user.used() == 0


def test_arrays_end_with_their_context(users: Users) -> None:
    user = users()
    context = user.ok("cuCtxCreate_v2", OUT, 0, 0)
    array = user.ok("cuArray3DCreate_v2", OUT, _format(256, 256, 1))
    mipmap = user.ok("cuMipmappedArrayCreate", OUT, _format(256, 256, 1), 3)
    assert user.used() > 0
    user.ok("cuCtxDestroy_v2", context)
    assert user.used() == 0
    assert user.call("cuArrayDestroy", array) != 0
    assert user.call("cuMipmappedArrayDestroy", mipmap) != 0


def test_a_full_card_refuses_and_reports_its_free_memory(users: Users) -> None:
    user = users(VGPU_STUB_MEMORY="8m")
    at = user.ok("cuMemAlloc_v2", OUT, 6 * MIB)
    assert user.call("cuMemAlloc_v2", OUT, 2 * MIB + 1) == OUT_OF_MEMORY
    user.ok("cuMemGetInfo_v2", OUT, OUT)
    assert (user.word(0), user.word(1)) == (2 * MIB, 8 * MIB)
    user.ok("cuMemFree_v2", at)
    user.ok("cuMemAlloc_v2", OUT, 8 * MIB)


def test_a_freed_address_is_the_next_to_be_returned(users: Users) -> None:
    user = users()
    first, second = (user.ok("cuMemAlloc_v2", OUT, 5000) for _ in range(2))
    assert second != first
    user.ok("cuMemFree_v2", first)
    assert user.ok("cuMemAlloc_v2", OUT, 5000) == first


def test_an_address_that_was_not_allocated_cannot_be_freed(users: Users) -> None:
    user = users()
    at = user.ok("cuMemAlloc_v2", OUT, 5000)
    assert user.call("cuMemFree_v2", at + 512) == INVALID_VALUE
    user.ok("cuMemFree_v2", at)
    assert user.call("cuMemFree_v2", at) == INVALID_VALUE
    assert user.call("cuMemFree_v2", 0) == 0


def test_rows_begin_at_multiples_of_512_bytes(users: Users) -> None:
    user = users()
    user.ok("cuMemAllocPitch_v2", OUT, OUT, 4, 1000, 4)
    assert user.word(1) == 512
    assert user.used() == 512 * 1000


def test_managed_memory_may_exceed_the_card_and_can_be_touched(users: Users) -> None:
    user = users(VGPU_STUB_MEMORY="8m")
    at = user.ok("cuMemAllocManaged", OUT, 64 * MIB, 1)
    user.call("memset", at, 7, 64 * MIB, library="")
    assert user.used() == 0
    user.ok("cuMemFree_v2", at)
    user.ok("cuMemAllocManaged", OUT, 4 * MIB, 1)
    assert user.used() == 4 * MIB


def test_host_memory_takes_nothing_of_the_card(users: Users) -> None:
    user = users()
    at = user.ok("cuMemHostAlloc", OUT, MIB, 0)
    user.call("memset", at, 7, MIB, library="")
    assert user.used() == 0
    assert user.call("cuMemFree_v2", at) == INVALID_VALUE
    user.ok("cuMemFreeHost", at)


def test_the_attributes_of_an_address_are_its_allocations(users: Users) -> None:
    user = users()
    at = user.ok("cuMemAlloc_v2", OUT, 5000)
    user.ok("cuMemGetAddressRange_v2", OUT, OUT, at + 4999)
    assert (user.word(0), user.word(1)) == (at, 5000)
    assert user.call("cuMemGetAddressRange_v2", OUT, OUT, at + 5000) == 500
    assert user.ok("cuPointerGetAttribute", {"out": 8}, 2, at) == 2  # the type: of a device
    managed = user.ok("cuMemAllocManaged", OUT, 5000, 1)
    assert user.ok("cuPointerGetAttribute", {"out": 8}, 8, managed) & 0xFF == 1


def test_written_memory_can_be_read(users: Users) -> None:
    user = users()
    at, other = (user.ok("cuMemAlloc_v2", OUT, 64) for _ in range(2))
    user.ok("cuMemcpyHtoD_v2", at, {"in": b"written!".hex()}, 8)
    user.ok("cuMemcpyDtoD_v2", other, at, 8)
    user.ok("cuMemsetD8_v2", other, ord("x"), 2)
    user.ok("cuMemcpyDtoH_v2", {"out": 8}, other, 8)
    assert user.out[0] == b"xxitten!"
    assert user.call("cuMemcpyDtoH_v2", {"out": 8}, other + 60, 8) == INVALID_VALUE


def test_a_pool_keeps_what_it_has_until_a_synchronization(users: Users) -> None:
    user = users()
    at = user.ok("cuMemAllocAsync", OUT, 5 * MIB, 0)
    assert user.used() == 32 * MIB
    pool = user.ok("cuDeviceGetDefaultMemPool", OUT, 0)
    assert user.ok("cuMemPoolGetAttribute", pool, 5, OUT) == 32 * MIB
    assert user.ok("cuMemPoolGetAttribute", pool, 7, OUT) == 5 * MIB
    user.ok("cuMemFreeAsync", at, 0)
    assert user.used() == 32 * MIB
    user.ok("cuStreamSynchronize", 0)
    assert user.used() == 0
    assert user.ok("cuMemPoolGetAttribute", pool, 6, OUT) == 32 * MIB, "at most"


def test_a_pool_keeps_as_much_as_its_threshold_until_it_is_trimmed(users: Users) -> None:
    user = users()
    pool = user.ok("cuDeviceGetMemPool", OUT, 0)
    user.ok("cuMemPoolSetAttribute", pool, 4, {"in": struct.pack("<Q", 2**64 - 1).hex()})
    for at in [user.ok("cuMemAllocAsync", OUT, 40 * MIB, 0) for _ in range(3)]:
        user.ok("cuMemFreeAsync", at, 0)
    user.ok("cuCtxSynchronize")
    assert user.used() == 128 * MIB
    user.ok("cuMemPoolTrimTo", pool, 64 * MIB)
    assert user.used() == 64 * MIB


def test_memory_of_a_pool_is_freed_by_cumemfree_too(users: Users) -> None:
    user = users()
    user.ok("cuMemFree_v2", user.ok("cuMemAllocAsync", OUT, 5 * MIB, 0))
    user.ok("cuCtxSynchronize")
    assert user.used() == 0


def test_a_pool_that_is_destroyed_lives_as_long_as_its_last_piece(users: Users) -> None:
    user = users()
    properties = struct.pack("<IIII", 1, 0, 1, 0) + bytes(72)
    pool = user.ok("cuMemPoolCreate", OUT, {"in": properties.hex()})
    at = user.ok("cuMemAllocFromPoolAsync", OUT, MIB, pool, 0)
    user.ok("cuMemPoolDestroy", pool)
    assert user.used() == 32 * MIB
    assert user.call("cuMemAllocFromPoolAsync", OUT, MIB, pool, 0) == INVALID_VALUE
    user.ok("cuMemFreeAsync", at, 0)
    assert user.used() == 0


def test_memory_that_is_mapped_outlives_its_handle(users: Users) -> None:
    user = users()
    handle = user.ok("cuMemCreate", OUT, 4 * MIB, _property(), 0)
    at = user.ok("cuMemAddressReserve", OUT, 8 * MIB, 0, 0, 0)
    assert user.used() == 4 * MIB, "addresses are for nothing"
    user.ok("cuMemMap", at, 4 * MIB, 0, handle, 0)
    user.ok("cuMemRelease", handle)
    assert user.used() == 4 * MIB
    assert user.call("cuMemRelease", handle) == INVALID_VALUE
    assert user.call("cuMemAddressFree", at, 8 * MIB) == INVALID_VALUE, "mapped"
    again = user.ok("cuMemRetainAllocationHandle", OUT, at + 5)
    user.ok("cuMemUnmap", at, 4 * MIB)
    assert user.used() == 4 * MIB
    user.ok("cuMemRelease", again)
    assert user.used() == 0
    user.ok("cuMemAddressFree", at, 8 * MIB)


def test_memory_is_created_on_the_card_that_is_asked_for(users: Users) -> None:
    user = users(VGPU_STUB_DEVICES="2")
    user.ok("cuMemCreate", OUT, 2 * MIB, _property(device=1), 0)
    assert (user.used(0), user.used(1)) == (0, 2 * MIB)
    assert user.call("cuMemCreate", OUT, 2 * MIB, _property(device=2), 0) == 101
    assert user.call("cuMemCreate", OUT, 2 * MIB - 1, _property(), 0) == INVALID_VALUE


def test_exported_memory_counts_once_until_the_last_process_releases_it(
    users: Users,
) -> None:
    user, two = users(), users()
    handle = user.ok("cuMemCreate", OUT, 4 * MIB, _property(handles=1), 0)
    descriptor = user.ok("cuMemExportToShareableHandle", {"out": 4}, handle, 1, 0)
    path = f"/proc/{user.pid}/fd/{descriptor}"
    here = two.call("open", path, 0, library="")
    imported = two.ok("cuMemImportFromShareableHandle", OUT, here, 1)
    assert two.used() == 4 * MIB
    assert two.call("vgpu_stub_used_by", user.pid, 0) == 4 * MIB
    user.end()
    assert two.used() == 4 * MIB
    assert two.call("vgpu_stub_used_by", two.pid, 0) == 4 * MIB, "nobody else is left"
    two.ok("cuMemRelease", imported)
    assert two.used() == 0


def test_memory_of_another_process_can_be_opened_and_closed(users: Users) -> None:
    user, two = users(), users()
    at = user.ok("cuMemAlloc_v2", OUT, 3 * MIB)
    user.ok("cuIpcGetMemHandle", {"out": 64}, at)
    handle = {"value": user.out[0].hex()}
    assert user.call("cuIpcOpenMemHandle_v2", OUT, handle, 1) == 201, "it is its own"
    there = two.ok("cuIpcOpenMemHandle_v2", OUT, handle, 1)
    assert two.ok("cuIpcOpenMemHandle_v2", OUT, handle, 1) == there
    assert two.used() == 3 * MIB
    assert two.call("cuMemFree_v2", there) == INVALID_VALUE
    two.ok("cuIpcCloseMemHandle", there)
    two.ok("cuIpcCloseMemHandle", there)
    assert two.call("cuIpcCloseMemHandle", there) == INVALID_VALUE
    user.ok("cuMemFree_v2", at)
    assert two.used() == 0
    assert two.call("cuIpcOpenMemHandle_v2", OUT, handle, 1) == 400, "there is no more"


def test_arrays_and_mipmaps_take_whole_pieces(users: Users) -> None:
    user = users()
    array = user.ok("cuArray3DCreate_v2", OUT, _format(100, 100, 0))
    assert user.used() == 65536
    mipmap = user.ok("cuMipmappedArrayCreate", OUT, _format(256, 256, 0), 3)
    assert user.used() == 65536 * (1 + 4 + 1 + 1)
    level = user.ok("cuMipmappedArrayGetLevel", OUT, mipmap, 2)
    assert user.call("cuArrayDestroy", level) == 400
    user.ok("cuArray3DCreate_v2", OUT, _format(1000, 1000, 0, flags=0x40))  # sparse
    assert user.used() == 65536 * 7
    user.ok("cuMipmappedArrayDestroy", mipmap)
    user.ok("cuArrayDestroy", array)
    assert user.used() == 0


def test_a_graph_takes_its_memory_when_launched_and_keeps_it_until_trimmed(users: Users) -> None:
    user = users()
    graph = user.ok("cuGraphCreate", OUT, 0)
    node = struct.pack("<IIII", 1, 0, 1, 0) + bytes(72) + struct.pack("<QQQQ", 0, 0, 3 * MIB, 0)
    user.ok("cuGraphAddMemAllocNode", OUT, graph, 0, 0, {"inout": node.hex()})
    at = int.from_bytes(user.out[1][-8:], "little")
    ready = user.ok("cuGraphInstantiateWithFlags", OUT, graph, 0)
    assert user.used() == 0
    user.ok("cuGraphLaunch", ready, 0)
    assert user.used() == 4 * MIB
    assert user.call("cuGraphLaunch", ready, 0) == INVALID_VALUE, "it still has its memory"
    assert user.ok("cuDeviceGetGraphMemAttribute", 0, 0, OUT) == 3 * MIB
    assert user.ok("cuDeviceGetGraphMemAttribute", 0, 2, OUT) == 4 * MIB
    user.ok("cuMemFree_v2", at)
    assert user.call("cuMemFree_v2", at) == INVALID_VALUE
    user.ok("cuGraphLaunch", ready, 0)
    user.ok("cuMemFreeAsync", at, 0)
    assert user.used() == 4 * MIB
    user.ok("cuDeviceGraphMemTrim", 0)
    assert user.used() == 0


def test_contexts_and_modules_take_as_much_as_is_set(users: Users) -> None:
    user = users(VGPU_STUB_CONTEXT_BYTES="300m", VGPU_STUB_MODULE_BYTES="10m")
    assert user.used() == 300 * MIB
    made = user.ok("cuCtxCreate_v2", OUT, 0, 0)
    module = user.ok("cuModuleLoadData", OUT, {"in": "00"})
    user.ok("cuMemAlloc_v2", OUT, MIB)
    assert user.used() == 611 * MIB
    user.ok("cuModuleUnload", module)
    user.ok("cuCtxDestroy_v2", made)
    assert user.used() == 300 * MIB, "its memory went with it"
    user.ok("cuDevicePrimaryCtxRelease_v2", 0)
    assert user.used() == 0


def test_a_green_context_is_a_context(users: Users) -> None:
    user = users(VGPU_STUB_CONTEXT_BYTES="300m")
    user.ok("cuDeviceGetDevResource", 0, {"out": 256}, 1)
    description = user.ok("cuDevResourceGenerateDesc", OUT, {"in": user.out[0].hex()}, 1)
    green = user.ok("cuGreenCtxCreate", OUT, description, 0, 1)
    assert user.used() == 600 * MIB
    user.ok("cuCtxSetCurrent", user.ok("cuCtxFromGreenCtx", OUT, green))
    user.ok("cuGreenCtxDestroy", green)
    assert user.used() == 300 * MIB


def test_processes_share_a_card(users: Users) -> None:
    user, two = users(VGPU_STUB_MEMORY="8m"), users()
    user.ok("cuMemAlloc_v2", OUT, 5 * MIB)
    assert two.call("cuMemAlloc_v2", OUT, 4 * MIB) == OUT_OF_MEMORY
    two.ok("cuMemAlloc_v2", OUT, 3 * MIB)
    by = [two.call("vgpu_stub_used_by", each.pid, 0) for each in (user, two)]
    assert by == [5 * MIB, 3 * MIB]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_process_that_dies_gives_back_at_once(users: Users, number: int) -> None:
    user, two = users(VGPU_STUB_MEMORY="8m"), users()
    user.ok("cuMemAlloc_v2", OUT, 8 * MIB)
    user.end(number)
    two.ok("cuMemAlloc_v2", OUT, 8 * MIB)


def test_a_process_that_is_stopped_keeps_its_memory(users: Users) -> None:
    user, two = users(), users()
    user.ok("cuMemAlloc_v2", OUT, MIB)
    user.process.send_signal(signal.SIGSTOP)
    assert two.used() == MIB


def test_a_process_that_becomes_another_program_gives_back(users: Users) -> None:
    user, two = users(), users()
    user.ok("cuMemAlloc_v2", OUT, MIB)
    user.send("execlp", "sleep", "sleep", "60", 0, library="")
    for _ in range(200):
        if two.used() == 0:
            break
    assert two.used() == 0
    assert user.process.poll() is None


def test_processes_killed_at_any_moment_leave_nothing(users: Users) -> None:
    last = users()
    for turn in range(30):
        user = users()
        for size in range(1, 40):
            user.send("cuMemAlloc_v2", OUT, size * MIB)
        if turn % 3:
            user.answer()
        user.end()
    assert last.used() == 0
    last.ok("cuMemAlloc_v2", OUT, MIB)


@pytest.mark.parametrize(("setting", "result"), [("0", NOT_INITIALIZED), ("1", 0)])
def test_a_child_of_fork_is_refused_unless_the_test_wants_it(
    native: Path, setting: str, result: int
) -> None:
    code = (
        "import ctypes, os; driver = ctypes.CDLL('libcuda.so.1'); assert driver.cuInit(0) == 0\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(driver.cuInit(0))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    environment = {"LD_LIBRARY_PATH": str(native / "stub"), "VGPU_STUB_FORK": setting}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=30, check=True)
    assert int(done.stdout) == result


def test_a_child_that_may_use_the_driver_is_a_process_of_its_own(
    native: Path, tmp_path: Path
) -> None:
    code = (
        "import ctypes, os; driver = ctypes.CDLL('libcuda.so.1'); assert driver.cuInit(0) == 0\n"
        "os.chdir('/'); begun, done = os.pipe(), os.pipe()\n"
        "def use():\n"
        "    at = ctypes.c_uint64(); driver.cuInit(0)\n"
        "    driver.cuDevicePrimaryCtxRetain(ctypes.byref(at), 0); driver.cuCtxSetCurrent(at)\n"
        "    driver.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(4096))\n"
        "    os.write(begun[1], b'.'); os.read(done[0], 1); os._exit(0)\n"
        "child = os.fork()\n"
        "if child == 0: use()\n"
        "os.read(begun[0], 1); print(driver.vgpu_stub_used_by(child, 0))\n"
        "os.write(done[1], b'.'); os.waitpid(child, 0); print(driver.vgpu_stub_used(0))"
    )
    environment = {
        "LD_LIBRARY_PATH": str(native / "stub"),
        "VGPU_STUB_FORK": "1",
        "VGPU_STUB_STATE": "machine",
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, timeout=30, check=True
    )
    assert done.stdout.split() == [b"4096", b"0"]
