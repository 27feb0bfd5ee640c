"""The stub NVML shows the stub driver's cards to programs that use NVML's Python package."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from native.harness.card_user import OUT, CardUser

MIB = 1 << 20
Users = Callable[..., CardUser]
Ask = Callable[..., Any]

CONTAINED = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
_TAKING = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, device, pointer = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
assert not cuda.cuInit(0)
assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxSetCurrent(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
print(os.getpid(), flush=True)
sys.stdin.read()
"""
_BEGIN = "import json, pynvml as n, sys; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex\n"


@pytest.fixture
def ask(native: Path, tmp_path: Path) -> Ask:
    """Return a function that evaluates an expression in a process with NVML open as `n`."""

    def answer(expression: str, **settings: str) -> Any:
        environment = {
            "LD_LIBRARY_PATH": str(native / "stub"),
            "VGPU_STUB_STATE": str(tmp_path / "machine"),
            **settings,
        }
        command = [sys.executable, "-c", f"{_BEGIN}json.dump({expression}, sys.stdout)"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return answer


def test_cards_are_found_by_number_uuid_and_place(ask: Ask) -> None:
    answers = ask(
        "[n.nvmlDeviceGetCount(), n.nvmlDeviceGetUUID(h(1)),"
        " n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h(2)))),"
        " n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId("
        "n.nvmlDeviceGetPciInfo(h(3)).busId)),"
        " n.nvmlDeviceGetName(h(0))]",
        VGPU_STUB_DEVICES="4",
    )
    assert answers == [4, "GPU-00000000-0000-0000-0000-000000000001", 2, 3, "Stub GPU"]


def test_memory_and_processes_are_those_of_the_driver(users: Users, ask: Ask) -> None:
    user, two = users(VGPU_STUB_MEMORY="1g"), users()
    user.ok("cuMemAlloc_v2", OUT, 5 * MIB)
    two.ok("cuMemAlloc_v2", OUT, 3 * MIB)
    memory, listed = ask(
        "[n.nvmlDeviceGetMemoryInfo(h(0)).used,"
        " [[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(h(0))]]"
    )
    assert memory == 8 * MIB
    assert sorted(listed) == sorted([[user.pid, 5 * MIB], [two.pid, 3 * MIB]])
    user.end()
    assert ask("[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h(0))]") == [two.pid]
    v2 = ask("n.nvmlDeviceGetMemoryInfo(h(0), version=n.nvmlMemory_v2).total")
    assert v2 == 1 << 30


@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_all_versions_list_the_same_processes(users: Users, ask: Ask, version: str) -> None:
    user = users()
    user.ok("cuMemAlloc_v2", OUT, 5 * MIB)
    fields = "[('pid', c.c_uint), ('used', c.c_ulonglong)]"
    if version:
        fields = fields[:-1] + ", ('gi', c.c_uint), ('ci', c.c_uint)]"
    expression = (
        "(lambda c, n=n: (lambda t: (lambda a, k: ["
        f"n.nvmlLib.nvmlDeviceGetComputeRunningProcesses{version}(h(0), c.byref(k), a),"
        " k.value, a[0].pid, a[0].used])((t * 4)(), c.c_uint(4)))"
        f"(type('T', (c.Structure,), {{'_fields_': {fields}}})))(__import__('ctypes'))"
    )
    assert ask(expression) == [0, 1, user.pid, 5 * MIB]


def test_a_list_that_does_not_fit_is_refused_with_its_length(users: Users, ask: Ask) -> None:
    users().ok("cuMemAlloc_v2", OUT, MIB)
    expression = (
        "(lambda c, k: [n.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3(h(0), c.byref(k), None),"
        " k.value])(__import__('ctypes'), __import__('ctypes').c_uint(0))"
    )
    assert ask(expression) == [7, 1]


def test_a_busy_card_and_its_process_are_seen_to_be_busy(users: Users, ask: Ask) -> None:
    user = users(VGPU_STUB_KERNEL_NS="20000000")
    user.ok("cuMemAlloc_v2", OUT, MIB)
    for _ in range(100):
        user.ok("cuLaunchKernel", 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    look = "n.nvmlDeviceGetUtilizationRates(h(0)).gpu"
    first, _, second = ask(f"[{look}, __import__('time').sleep(0.3), {look}]")
    assert first == 0
    assert second >= 90


def test_a_critical_error_reaches_a_waiting_process(
    users: Users, native: Path, tmp_path: Path
) -> None:
    code = (
        _BEGIN + "s = n.nvmlEventSetCreate()\n"
        "n.nvmlDeviceRegisterEvents(h(1), n.nvmlEventTypeXidCriticalError, s)\n"
        "print('waiting', flush=True); e = n.nvmlEventSetWait_v2(s, 20000)\n"
        "print(n.nvmlDeviceGetIndex(e.device), e.eventType, e.eventData)"
    )
    user = users(VGPU_STUB_DEVICES="2")
    waiting = subprocess.Popen(
        [sys.executable, "-c", code],
        env={
            "LD_LIBRARY_PATH": str(native / "stub"),
            "VGPU_STUB_STATE": str(tmp_path / "machine"),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "waiting\n"
    user.call("vgpu_stub_xid", 0, 31)
    begin = time.monotonic()
    user.call("vgpu_stub_xid", 1, 79)
    assert waiting.communicate(timeout=20)[0] == "1 8 79\n"
    assert time.monotonic() - begin < 5


def test_waiting_for_errors_ends_in_time(ask: Ask) -> None:
    expression = (
        "(lambda s, c, t: [n.nvmlLib.nvmlEventSetWait_v2(s, c.byref(n.c_nvmlEventData_t()), 50),"
        " t.monotonic()])(n.nvmlEventSetCreate(), __import__('ctypes'), __import__('time'))[0]"
    )
    assert ask(expression) == 10


def test_a_card_that_is_lost_answers_nothing_else(users: Users, ask: Ask) -> None:
    user = users(VGPU_STUB_DEVICES="2")
    user.call("vgpu_stub_lose", 1, 1, library="libnvidia-ml.so.1")
    calls = (
        "[(lambda m: n.nvmlLib.nvmlDeviceGetMemoryInfo(h(i), m))"
        "(__import__('ctypes').byref(n.c_nvmlMemory_t())) for i in (0, 1)]"
    )
    assert ask(calls) == [0, 15]


def test_cards_have_places_among_each_other(ask: Ask) -> None:
    expression = (
        "[[n.nvmlDeviceGetTopologyCommonAncestor(h(0), h(i)) for i in (1, 2, 4)],"
        " [n.nvmlDeviceGetNumaNodeId(h(i)) for i in (0, 7)],"
        " n.nvmlDeviceGetP2PStatus(h(0), h(1), 0), n.nvmlDeviceGetMigMode(h(0))]"
    )
    assert ask(expression, VGPU_STUB_DEVICES="8") == [[10, 40, 50], [0, 1], 0, [0, 0]]


def test_before_it_is_initialised_nvml_refuses(native: Path) -> None:
    code = (
        "import ctypes; n = ctypes.CDLL('libnvidia-ml.so.1'); n.nvmlErrorString.restype ="
        " ctypes.c_char_p; print(n.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())),"
        " n.nvmlErrorString(1).decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"LD_LIBRARY_PATH": str(native / "stub")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "1 Uninitialized\n"


def test_a_process_is_named_by_its_pid_on_the_host(native: Path, tmp_path: Path, ask: Ask) -> None:
    """A container's process has another pid in its own namespace."""
    if subprocess.run([*CONTAINED, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here")
    machine = {
        "LD_LIBRARY_PATH": str(native / "stub"),
        "VGPU_STUB_STATE": str(tmp_path / "machine"),
    }
    with subprocess.Popen(
        [*CONTAINED, sys.executable, "-c", _TAKING],
        env=machine,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as contained:
        assert contained.stdout is not None
        assert contained.stdout.readline() == "1\n", "its own pid is that of a container"
        [pid] = ask("[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h(0))]")
        assert "NSpid" in Path(f"/proc/{pid}/status").read_text()
        [namespaced] = re.findall(r"NSpid:.*\t(\d+)\n", Path(f"/proc/{pid}/status").read_text())
        assert (pid != 1, namespaced) == (True, "1")
        contained.communicate()


def test_only_cards_with_a_device_node_are_seen(ask: Ask, tmp_path: Path) -> None:
    for number in (1, 3):
        (tmp_path / f"nvidia{number}").touch()
    answers = ask(
        "[n.nvmlDeviceGetCount(), n.nvmlDeviceGetUUID(h(0)), n.nvmlDeviceGetMinorNumber(h(1)),"
        " n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h(1))))]",
        VGPU_STUB_DEVICES="4",
        VGPU_STUB_NODES=str(tmp_path),
    )
    assert answers == [2, "GPU-00000000-0000-0000-0000-000000000001", 3, 1]
