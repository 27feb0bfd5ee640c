"""The stub driver is found, answers and fails as a driver does."""

import ctypes
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.builds import BUILD
from native.harness.card_user import OUT, CardUser

UNKNOWN, NOT_FOUND, NEWER = 999, 500, 36
FOUND, NO_SYMBOL, NO_VERSION = 0, 1, 2
Users = Callable[..., CardUser]


def _declared(header: str) -> set[str]:
    """Return the functions that cuda.h declares, without those it only renames."""
    return set(re.findall(r"\bCUresult\s+CUDAAPI\s+(cu\w+)\s*\(", header))


def test_every_function_of_the_header_is_exported(native: Path) -> None:
    header = (BUILD / "headers/nvidia/cu13/include/cuda.h").read_text()
    driver = ctypes.CDLL(str(native / "stub/libcuda.so.1"))
    assert len(_declared(header)) > 400
    missing = [name for name in _declared(header) if not hasattr(driver, name)]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "version", "flags", "symbol"),
    [
        ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
        ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 99000, 0, "cuMemAlloc_v2"),
        ("cuCtxGetDevice", 12000, 0, "cuCtxGetDevice"),
        ("cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"),
        ("cuMemPrefetchAsync", 8000, 0, "cuMemPrefetchAsync"),
        ("cuMemPrefetchAsync", 8000, 2, "cuMemPrefetchAsync_ptsz"),
        ("cuMemPrefetchAsync", 12020, 0, "cuMemPrefetchAsync_v2"),
        ("cuMemPrefetchAsync", 13000, 2, "cuMemPrefetchAsync_v2_ptsz"),
        ("cuLaunchKernel", 13000, 0, "cuLaunchKernel"),
        ("cuLaunchKernel", 13000, 1, "cuLaunchKernel"),
        ("cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz"),
        ("cuLaunchKernel", 6000, 2, "cuLaunchKernel"),
        ("cuMemFree", 13000, 2, "cuMemFree_v2"),
        ("cuCtxCreate", 12000, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
        ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
    ],
)
def test_a_name_a_version_and_a_stream_select_the_function(
    users: Users, name: str, version: int, flags: int, symbol: str
) -> None:
    user = users()
    user.ok("cuGetProcAddress_v2", name, OUT, version, flags, {"out": 4})
    assert user.word(1) == FOUND
    assert user.word(0) == _address(user, symbol)


def _address(user: CardUser, symbol: str) -> int:
    """Return where the driver has a function."""
    return user.call("vgpu_stub_address", symbol)


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [("cuNothing", 13000, NO_SYMBOL), ("", 0, NO_SYMBOL), ("cuMemAllocAsync", 10000, NO_VERSION)],
)
def test_a_missing_function_differs_from_one_that_is_too_new(
    users: Users, name: str, version: int, status: int
) -> None:
    user = users()
    assert user.call("cuGetProcAddress_v2", name, OUT, version, 0, {"out": 4}) == NOT_FOUND
    assert (user.word(0), user.word(1)) == (0, status)


def test_an_older_driver_lacks_newer_functions(users: Users) -> None:
    user = users(VGPU_STUB_VERSION="11040")
    assert user.ok("cuDriverGetVersion", OUT) == 11040
    assert user.call("cuGetProcAddress_v2", "cuLibraryLoadData", OUT, 13000, 0, {"out": 4}) == NEWER
    assert user.call("cuGetProcAddress", "cuLibraryLoadData", OUT, 13000, 0) == NOT_FOUND
    assert user.call("cuGetProcAddress", "cuMemAllocAsync", OUT, 13000, 0) == 0
    assert user.call("cuLibraryLoadData", OUT, 0, 0, 0, 0, 0, 0, 0) == NEWER


def test_the_kth_call_of_a_function_fails(users: Users) -> None:
    user = users(VGPU_STUB_FAIL="cuMemAlloc_v2:2,cuMemFree_v2:1")
    at = user.ok("cuMemAlloc_v2", OUT, 4096)
    assert user.call("cuMemAlloc_v2", OUT, 4096) == UNKNOWN
    assert user.call("cuMemFree_v2", at) == UNKNOWN
    assert user.used() == 4096, "a call that fails does nothing"
    user.ok("cuMemFree_v2", at)
    user.call("vgpu_stub_fail", "cuMemAlloc_v2", 1, 2)
    assert user.call("cuMemAlloc_v2", OUT, 4096) == 2


def test_calls_take_as_long_as_is_set(users: Users) -> None:
    user = users(VGPU_STUB_DELAY_NS="100000000")
    begin = time.monotonic()
    user.ok("cuMemAlloc_v2", OUT, 4096)
    assert time.monotonic() - begin >= 0.1


def test_calls_are_counted_by_the_name_that_was_called(users: Users) -> None:
    user = users()
    for _ in range(3):
        user.ok("cuMemAlloc_v2", OUT, 4096)
    assert user.call("vgpu_stub_calls", "cuMemAlloc_v2") == 3
    assert user.call("vgpu_stub_calls", "cuMemAlloc") == 0


def test_preloaded_functions_do_not_enter_the_stubs_tables(
    users: Users, native: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.c").write_text("int cuMemAlloc_v2(void) { return 77; }\n")
    other = tmp_path / "libother.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(other), str(tmp_path / "other.c")]
    subprocess.run(command, check=True, timeout=60)
    user = users(preload=str(other))
    assert user.call("cuMemAlloc_v2", OUT, 1, library="") == 77
    user.ok("cuGetProcAddress_v2", "cuMemAlloc", OUT, 13000, 0, {"out": 4})
    assert user.word(0) == _address(user, "cuMemAlloc_v2")


def test_cards_have_the_uuids_that_limits_name(users: Users) -> None:
    user = users(VGPU_STUB_DEVICES="3")
    assert user.ok("cuDeviceGetCount", OUT) == 3
    user.ok("cuDeviceGetUuid_v2", {"out": 16}, 2)
    assert user.out[0] == bytes(15) + b"\x02"
    assert user.call("cuDeviceGetUuid_v2", {"out": 16}, 3) == 101
    user.ok("cuDeviceTotalMem_v2", OUT, 1)
    assert user.word() == 80 << 30
