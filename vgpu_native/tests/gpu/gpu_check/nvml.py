"""NVML by ctypes: the memory that the driver itself counts, and the facts of a card.

The machine of the check needs no package, so this uses neither NVIDIA's bindings nor
`vgpu_native/nvml`, which needs them.

The script reads NVML in its own process, which has no limits. An open NVML also keeps the driver
initialised, so that the start of each measured process takes less time.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

PROCESSES_MAX = 256
UNKNOWN = 2**64 - 1
LIBRARY = "libnvidia-ml.so.1"


class NvmlFailed(Exception):
    """NVML is missing or refuses a call; the message has the call and the number of the error."""


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Process(ctypes.Structure):
    """An entry of versions 2 and 3."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Nvml:
    """One card."""

    def __init__(self, path: str = LIBRARY) -> None:
        """Open NVML and its first card. Raises NvmlFailed."""
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise NvmlFailed(f"{path}: {error}") from error
        self._call("nvmlInit_v2")
        self._card = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(self._card))

    @property
    def is_stub(self) -> bool:
        """Whether this is the stub of the tests, also without `--stub`."""
        return hasattr(self._library, "vgpu_stub_lose")

    def choose(self, uuid: str) -> None:
        """Read another card from now on. Raises NvmlFailed."""
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._card))

    def used(self) -> int:
        """Return the bytes of the card that all processes use, with the driver's own."""
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._card, ctypes.byref(memory))
        return int(memory.used)

    def processes(self) -> dict[int, int | None]:
        """Return bytes by pid; None where the driver does not report them."""
        count = ctypes.c_uint(PROCESSES_MAX)
        entries = (_Process * PROCESSES_MAX)()
        name = "nvmlDeviceGetComputeRunningProcesses"
        last = next((v for v in ("_v3", "_v2") if hasattr(self._library, name + v)), "")
        if not last:
            return {}
        self._call(name + last, self._card, ctypes.byref(count), entries)
        read = entries[: count.value]
        return {
            int(entry.pid): None if entry.memory == UNKNOWN else int(entry.memory) for entry in read
        }

    def group(self, leader: int) -> int | None:
        """Return the bytes of all processes of a process group, None if none of them is listed."""
        own = [memory for pid, memory in self.processes().items() if _group_of(pid) == leader]
        known = [memory for memory in own if memory is not None]
        return sum(known) if known else None

    def facts(self) -> dict[str, Any]:
        """Return name, driver and state of the card; a fact that NVML refuses is missing."""
        facts: dict[str, Any] = {}
        for key, call in (("name", "nvmlDeviceGetName"), ("uuid", "nvmlDeviceGetUUID")):
            self._text(facts, key, call, self._card)
        self._text(facts, "driver", "nvmlSystemGetDriverVersion")
        self._number(facts, "persistence", "nvmlDeviceGetPersistenceMode")
        self._number(facts, "compute_mode", "nvmlDeviceGetComputeMode")
        self._number(facts, "mig", "nvmlDeviceGetMigMode", ctypes.byref(ctypes.c_uint()))
        return facts

    def _text(self, facts: dict[str, Any], key: str, call: str, *first: Any) -> None:
        room = ctypes.create_string_buffer(128)
        try:
            self._call(call, *first, room, 96)
            facts[key] = room.value.decode(errors="replace")
        except NvmlFailed:
            pass

    def _number(self, facts: dict[str, Any], key: str, call: str, *more: Any) -> None:
        value = ctypes.c_uint()
        try:
            self._call(call, self._card, ctypes.byref(value), *more)
            facts[key] = value.value
        except NvmlFailed:
            pass

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            result = getattr(self._library, name)(*arguments)
        except AttributeError as error:
            raise NvmlFailed(f"{name}: NVML has no such function") from error
        if result:
            raise NvmlFailed(f"{name}: NVML's error {result}")


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0
