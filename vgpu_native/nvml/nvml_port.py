"""NVML as the agent needs it: a port, and what may go wrong behind it.

The calls block, as the driver does; `NvmlDriver` makes them in threads of its own, with deadlines.
"""

import asyncio
import functools
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import msgspec

from vgpu_native.nvml.worker_thread import WorkerThread

CALL_SECONDS: Final = 10.0
"""How long NVML may take for an answer; a driver that hangs takes for ever."""

T = TypeVar("T")


class NvmlError(Exception):
    """NVML cannot be used, or refused; the text says which call, and what to do about it."""


class Gpu(msgspec.Struct, frozen=True):
    """A physical card: `memory` in bytes, `numa` 0 where it is not known.

    `cut` says that it is in MIG mode.
    """

    uuid: str
    index: int
    name: str
    memory: int
    numa: int = 0
    cut: bool = False


class Load(msgspec.Struct, frozen=True):
    """How a card is used: bytes, and percent of the last moment that it and its memory worked."""

    memory: int
    busy: int
    memory_busy: int


class DriverProcess(msgspec.Struct, frozen=True):
    """A process that uses a card, by its pid on the host, and the bytes it uses."""

    pid: int
    memory: int


class Xid(msgspec.Struct, frozen=True):
    """An error that the driver tells: which card, empty when that is not known, and the number."""

    uuid: str
    number: int


class Nvml(Protocol):
    """What a node's cards are and do. Every call blocks and may raise NvmlError."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the cards, in the order of their indexes."""
        ...

    def load(self, uuid: str) -> Load:
        """Return how a card is used now."""
        ...

    def processes(self, uuid: str) -> tuple[DriverProcess, ...]:
        """Return the processes that use a card."""
        ...

    def scores(self) -> dict[tuple[str, str], int]:
        """Return how well each two cards are linked, as `ledger.kube.hami.link_scores` says it."""
        ...

    def xid(self, seconds: float) -> Xid | None:
        """Wait for an error of any card; None when there is none for so long."""
        ...


class NvmlDriver:
    """NVML behind threads, so that a driver that hangs holds up nothing else.

    Events are waited for in a thread, and all else is asked for in another, one after the other.
    """

    def __init__(self, nvml: Nvml, seconds: float = CALL_SECONDS) -> None:
        """Ask `nvml`, for so many seconds at most."""
        self.nvml, self._seconds = nvml, seconds
        self._asking, self._listening = WorkerThread("nvml"), WorkerThread("nvml-events")
        self._pending: asyncio.Future[object] | None = None

    async def ask(self, call: Callable[..., T], *given: object) -> T:
        """Return what a call of the port returns. Raises NvmlError, also when it takes too long.

        While a call that took too long has not ended, all others fail at once.
        """
        if self._pending is not None and not self._pending.done():
            raise NvmlError("NVML has not answered for long: see whether the driver hangs (dmesg)")
        found = asyncio.wrap_future(self._asking.submit(functools.partial(call, *given)))
        try:
            return await asyncio.wait_for(asyncio.shield(found), self._seconds)
        except TimeoutError:
            self._pending = found
            found.add_done_callback(_forget_error)
            raise NvmlError(f"NVML did not answer in {self._seconds:g} s") from None

    async def xid(self, seconds: float) -> Xid | None:
        """Wait for an error of any card. Raises NvmlError."""
        call = functools.partial(self.nvml.xid, seconds)
        found: Xid | None = await asyncio.wrap_future(self._listening.submit(call))
        return found

    def close(self) -> None:
        """Let the threads end; one that hangs is not waited for."""
        for one in (self._asking, self._listening):
            one.close()

    @property
    def is_asking(self) -> bool:
        """Whether a call has not returned yet; it may never."""
        return self._asking.is_busy


def _forget_error(future: "asyncio.Future[T]") -> None:
    """Look at the error of a call whose caller was told already."""
    if not future.cancelled():
        future.exception()
