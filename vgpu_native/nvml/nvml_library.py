"""The real NVML, through its Python bindings, which load `libnvidia-ml.so.1` at the first use."""

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
NO_WHERE: Final = 2**64 - 1
"""In the place of a process's bytes: the driver does not know them."""

_BY_PATH: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: 60,
    pynvml.NVML_TOPOLOGY_SINGLE: 50,
    pynvml.NVML_TOPOLOGY_MULTIPLE: 40,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: 30,
    pynvml.NVML_TOPOLOGY_NODE: 20,
    pynvml.NVML_TOPOLOGY_SYSTEM: 10,
}
"""HAMi's scores for what lies between two cards."""

_PCI: Final = Path("/sys/bus/pci/devices")


class NvmlLibrary:
    """`Nvml` by the driver's own library. Calls may come from two threads."""

    def __init__(self) -> None:
        """Load nothing yet."""
        self._starting = threading.Lock()
        self._started = False
        self._events: Any = None
        # By uuid. NVML's own search for one may fail over a card that fell off its bus.
        self._handles: dict[str, Any] = {}

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the cards, in the order of their indexes. Raises NvmlError."""
        with self._calling("the list of cards"):
            found = _gpus(int(pynvml.nvmlDeviceGetCount()))
            self._handles |= {gpu.uuid: handle for gpu, handle in found}
            return tuple(gpu for gpu, _ in found)

    def load(self, uuid: str) -> Load:
        """Return how a card is used now. Raises NvmlError."""
        with self._calling(f"card {uuid}"):
            handle = self._handle(uuid)
            used = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
            busy = memory_busy = 0
            # A card that is cut into instances does not tell.
            with suppress(pynvml.NVMLError_NotSupported):
                rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
                busy, memory_busy = int(rates.gpu), int(rates.memory)
            return Load(used, busy, memory_busy)

    def processes(self, uuid: str) -> tuple[DriverProcess, ...]:
        """Return the processes that compute or draw on a card. Raises NvmlError."""
        with self._calling(f"the processes of card {uuid}"):
            handle = self._handle(uuid)
            found: dict[int, int] = {}
            for one in (
                *pynvml.nvmlDeviceGetComputeRunningProcesses(handle),
                *_graphics(handle),
            ):
                memory = one.usedGpuMemory
                known = memory is not None and memory != NO_WHERE
                found[int(one.pid)] = max(found.get(int(one.pid), 0), int(memory) if known else 0)
            return tuple(DriverProcess(pid, memory) for pid, memory in sorted(found.items()))

    def scores(self) -> dict[tuple[str, str], int]:
        """Return how well each two cards are linked. Raises NvmlError."""
        with self._calling("the links between cards"):
            handles = {one.uuid: self._handle(one.uuid) for one in self.gpus()}
            return {
                (one, other): _score(left, right)
                for one, left in handles.items()
                for other, right in handles.items()
                if one != other
            }

    def xid(self, seconds: float) -> Xid | None:
        """Wait for an error of any card; None when there is none for so long. Raises NvmlError."""
        with self._calling("errors of cards"):
            if self._events is None:
                self._events = _subscribed()
            try:
                told = pynvml.nvmlEventSetWait_v2(self._events, int(seconds * MILLISECONDS))
            except pynvml.NVMLError_Timeout:
                return None
            return Xid(self._uuid_of(told.device), int(told.eventData))

    def close(self) -> None:
        """Let go of the library."""
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
        """Return a card's uuid, empty when nobody knows it: a card that is lost does not tell."""
        for uuid, known in list(self._handles.items()):
            if _address(known) == _address(handle):
                return uuid
        with suppress(pynvml.NVMLError):
            return _text(pynvml.nvmlDeviceGetUUID(handle))
        return ""

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        """Make NVML's errors ours; after one that a new start may mend, NVML is started again."""
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
    """Return the cards that answer, and NVML's handles of them.

    One that fell off its bus takes no other with it.
    """
    found, silent = [], None
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append((_gpu(index, handle), handle))
        except (pynvml.NVMLError_Uninitialized, pynvml.NVMLError_DriverNotLoaded):
            raise
        except pynvml.NVMLError as error:
            silent = error
    if silent is not None and not found:
        raise silent
    return found


def _gpu(index: int, handle: Any) -> Gpu:
    return Gpu(
        _text(pynvml.nvmlDeviceGetUUID(handle)),
        index,
        _text(pynvml.nvmlDeviceGetName(handle)),
        int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        _numa(handle),
        _is_cut(handle),
    )


def _is_cut(handle: Any) -> bool:
    with suppress(pynvml.NVMLError, AttributeError):
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    return False


def _numa(handle: Any) -> int:
    """Return the NUMA node of a card as the kernel knows it, 0 when it does not."""
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
    """Count the NVLinks that lead from one card straight to another."""
    found = 0
    with suppress(pynvml.NVMLError, AttributeError):
        other = _text(pynvml.nvmlDeviceGetPciInfo(right).busId)
        for link in range(LINKS_MAX):
            if pynvml.nvmlDeviceGetNvLinkState(left, link):
                remote = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(left, link)
                found += _text(remote.busId) == other
    return found


def _subscribed() -> Any:
    """Return a set of the errors of all cards that tell them."""
    events = pynvml.nvmlEventSetCreate()
    try:
        _subscribe(events)
    except BaseException:
        # It is tried again and again: each set that is left takes a descriptor for good.
        with suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(events)
        raise
    return events


def _subscribe(events: Any) -> None:
    for index in range(int(pynvml.nvmlDeviceGetCount())):
        with suppress(pynvml.NVMLError_NotSupported, pynvml.NVMLError_GpuIsLost):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)


def _text(found: str | bytes) -> str:
    return found.decode() if isinstance(found, bytes) else found
