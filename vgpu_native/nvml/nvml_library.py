"""NVML library: the NVML port through NVIDIA's Python bindings, and the link scores of cards."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pynvml

from vgpu_native.nvml.nvml_port import DriverProcess, Gpu, Load, NvmlError, Xid

LINKS_MAX: Final = 18
"""NVLinks of one card."""

NVLINK: Final = 100
"""The score of one NVLink."""

MILLISECONDS: Final = 1_000
NO_MEMORY_VALUE: Final = 2**64 - 1
"""The value of a process's bytes that the driver returns if they are not available."""

_BY_PATH: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: 60,
    pynvml.NVML_TOPOLOGY_SINGLE: 50,
    pynvml.NVML_TOPOLOGY_MULTIPLE: 40,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: 30,
    pynvml.NVML_TOPOLOGY_NODE: 20,
    pynvml.NVML_TOPOLOGY_SYSTEM: 10,
}
"""HAMi's scores by the path between two cards."""

_PCI: Final = Path("/sys/bus/pci/devices")


class NvmlLibrary:
    """`Nvml` on the driver's own library. Two threads may call it."""

    def __init__(self) -> None:
        """Load nothing yet."""
        self._starting = threading.Lock()
        self._started = False
        self._events: Any = None
        # By uuid, because NVML's own search may fail if any card fell off its bus.
        self._handles: dict[str, Any] = {}

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the cards, in the order of their indexes. Raises NvmlError."""
        with self._calling("the list of cards"):
            pairs = _gpus(int(pynvml.nvmlDeviceGetCount()))
            self._handles |= {gpu.uuid: handle for gpu, handle in pairs}
            return tuple(gpu for gpu, _ in pairs)

    def load(self, uuid: str) -> Load:
        """Return the current load of a card. Raises NvmlError."""
        with self._calling(f"card {uuid}"):
            handle = self._handle(uuid)
            used = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
            busy = memory_busy = 0
            # A MIG card does not report utilization.
            with suppress(pynvml.NVMLError_NotSupported):
                rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
                busy, memory_busy = int(rates.gpu), int(rates.memory)
            return Load(used, busy, memory_busy)

    def processes(self, uuid: str) -> tuple[DriverProcess, ...]:
        """Return the processes that compute or draw on a card. Raises NvmlError."""
        with self._calling(f"the processes of card {uuid}"):
            handle = self._handle(uuid)
            used: dict[int, int] = {}
            for process in (
                *pynvml.nvmlDeviceGetComputeRunningProcesses(handle),
                *_graphics(handle),
            ):
                memory = process.usedGpuMemory
                known = memory is not None and memory != NO_MEMORY_VALUE
                used[int(process.pid)] = max(
                    used.get(int(process.pid), 0), int(memory) if known else 0
                )
            return tuple(DriverProcess(pid, memory) for pid, memory in sorted(used.items()))

    def scores(self) -> dict[tuple[str, str], int]:
        """Return the link score of each pair of cards. Raises NvmlError."""
        with self._calling("the links between cards"):
            handles = {gpu.uuid: self._handle(gpu.uuid) for gpu in self.gpus()}
            return {
                (uuid, other): _score(left, right)
                for uuid, left in handles.items()
                for other, right in handles.items()
                if uuid != other
            }

    def xid(self, seconds: float) -> Xid | None:
        """Return the next error of any card; None after `seconds` without one. Raises NvmlError."""
        with self._calling("errors of cards"):
            if self._events is None:
                self._events = _subscribed()
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, int(seconds * MILLISECONDS))
            except pynvml.NVMLError_Timeout:
                return None
            return Xid(self._uuid_of(event.device), int(event.eventData))

    def close(self) -> None:
        """Free the events and shut the library down."""
        with suppress(pynvml.NVMLError):
            if self._events is not None:
                pynvml.nvmlEventSetFree(self._events)
            if self._started:
                pynvml.nvmlShutdown()
        self._forget()

    def _forget(self) -> None:
        self._started, self._events, self._handles = False, None, {}

    def _handle(self, uuid: str) -> Any:
        return self._handles.get(uuid) or pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def _uuid_of(self, handle: Any) -> str:
        """Return a card's uuid; empty if it was never read and the card is lost."""
        for uuid, known in list(self._handles.items()):
            if _address(known) == _address(handle):
                return uuid
        with suppress(pynvml.NVMLError):
            return _text(pynvml.nvmlDeviceGetUUID(handle))
        return ""

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        """Raise NVML's errors as NvmlError; restart NVML after errors that a restart may fix."""
        try:
            self._start()
            yield
        except (pynvml.NVMLError_Uninitialized, pynvml.NVMLError_DriverNotLoaded) as error:
            self._forget()
            raise NvmlError(f"NVML: {what}: {error}") from error
        except (pynvml.NVMLError, AttributeError, ValueError) as error:
            raise NvmlError(f"NVML: {what}: {error}") from error

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                _must_work(pynvml.nvmlInit)
                self._started = True


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _must_work(start: Callable[[], None]) -> None:
    try:
        start()
    except pynvml.NVMLError_LibraryNotFound as error:
        raise NvmlError(
            "NVML: libnvidia-ml.so.1 is not found: is this a node with NVIDIA's driver, and is the"
            " driver visible in this container (NVIDIA_VISIBLE_DEVICES=all, NVIDIA_DRIVER_"
            "CAPABILITIES=utility)?"
        ) from error


def _gpus(count: int) -> list[tuple[Gpu, Any]]:
    """Return the cards that respond, with NVML's handles.

    A card that fell off its bus does not hide the others.
    """
    pairs, failure = [], None
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pairs.append((_gpu(index, handle), handle))
        except (pynvml.NVMLError_Uninitialized, pynvml.NVMLError_DriverNotLoaded):
            raise
        except pynvml.NVMLError as error:
            failure = error
    if failure is not None and not pairs:
        raise failure
    return pairs


def _gpu(index: int, handle: Any) -> Gpu:
    return Gpu(
        _text(pynvml.nvmlDeviceGetUUID(handle)),
        index,
        _text(pynvml.nvmlDeviceGetName(handle)),
        int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        _numa(handle),
        _has_mig(handle),
    )


def _has_mig(handle: Any) -> bool:
    with suppress(pynvml.NVMLError, AttributeError):
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    return False


def _numa(handle: Any) -> int:
    """Return the NUMA node of a card from sysfs; 0 if the kernel has none."""
    with suppress(pynvml.NVMLError, AttributeError, OSError, ValueError):
        bus = _text(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower()
        # NVML writes the domain in eight digits, the kernel in four.
        domain, _, rest = bus.partition(":")
        return max(int((_PCI / f"{domain[-4:]}:{rest}" / "numa_node").read_text()), 0)
    return 0


def _graphics(handle: Any) -> list[Any]:
    with suppress(pynvml.NVMLError, AttributeError):
        return list(pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle))
    return []


def _score(left: Any, right: Any) -> int:
    links = _links(left, right)
    if links:
        return links * NVLINK
    with suppress(pynvml.NVMLError, AttributeError):
        return _BY_PATH.get(pynvml.nvmlDeviceGetTopologyCommonAncestor(left, right), 0)
    return 0


def _links(left: Any, right: Any) -> int:
    """Return the number of direct NVLinks from one card to another."""
    count = 0
    with suppress(pynvml.NVMLError, AttributeError):
        other = _text(pynvml.nvmlDeviceGetPciInfo(right).busId)
        for link in range(LINKS_MAX):
            if pynvml.nvmlDeviceGetNvLinkState(left, link):
                remote = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(left, link)
                count += _text(remote.busId) == other
    return count


def _subscribed() -> Any:
    """Return an event set for the errors of all cards that report errors."""
    events = pynvml.nvmlEventSetCreate()
    try:
        _subscribe(events)
    except BaseException:
        # The caller retries, and each set that is not freed leaks a descriptor.
        with suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(events)
        raise
    return events


def _subscribe(events: Any) -> None:
    for index in range(int(pynvml.nvmlDeviceGetCount())):
        with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_GpuIsLost):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)


def _text(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text
