"""NVML port: the queries that the agent makes of GPUs, their deadlines and their errors.

A call blocks until the driver returns. `NvmlDriver` runs them in its own threads, with deadlines.
"""

import asyncio
import functools
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import msgspec

from vgpu_native.nvml.worker_thread import WorkerThread

CALL_SECONDS: Final = 10.0
"""Deadline of an NVML call; a hung driver never returns."""

T = TypeVar("T")


class NvmlError(Exception):
    """NVML is not usable or a call failed; the message names the call and the remedy."""


class Gpu(msgspec.Struct, frozen=True):
    """A physical card: `memory` in bytes, `numa` 0 if unknown.

    `cut` is set if the card is in MIG mode.
    """

    uuid: str
    index: int
    name: str
    memory: int
    numa: int = 0
    cut: bool = False


class Load(msgspec.Struct, frozen=True):
    """The load of a card: bytes in use, and percent of time its cores and memory were busy."""

    memory: int
    busy: int
    memory_busy: int


class DriverProcess(msgspec.Struct, frozen=True):
    """A process that uses a card: its pid on the host, and the bytes it uses."""

    pid: int
    memory: int


class Xid(msgspec.Struct, frozen=True):
    """An error that the driver reports: the card's uuid, empty if unknown, and the number."""

    uuid: str
    number: int


class Nvml(Protocol):
    """The cards of a node and their load. Every call blocks and may raise NvmlError."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the cards, in the order of their indexes."""
        ...

    def load(self, uuid: str) -> Load:
        """Return the current load of a card."""
        ...

    def processes(self, uuid: str) -> tuple[DriverProcess, ...]:
        """Return the processes that use a card."""
        ...

    def scores(self) -> dict[tuple[str, str], int]:
        """Return the link score of each pair of cards, on `ledger.kube.hami.link_scores`' scale."""
        ...

    def xid(self, seconds: float) -> Xid | None:
        """Return the next error of any card; None after `seconds` without one."""
        ...


class NvmlDriver:
    """NVML behind threads, so that a hung driver blocks only its own calls.

    One thread waits for events. A second thread runs all other calls, one after the other.
    """

    def __init__(self, nvml: Nvml, seconds: float = CALL_SECONDS) -> None:
        """Call `nvml` with a deadline of `seconds`."""
        self.nvml, self._seconds = nvml, seconds
        self._calls, self._events = WorkerThread("nvml"), WorkerThread("nvml-events")
        self._pending: asyncio.Future[object] | None = None

    async def ask(self, call: Callable[..., T], *given: object) -> T:
        """Return the result of a call of the port. Raises NvmlError, also after the deadline.

        While a call runs beyond its deadline, all other calls fail at once.
        """
        if self._pending is not None and not self._pending.done():
            raise NvmlError("NVML has not answered for long: see whether the driver hangs (dmesg)")
        future = asyncio.wrap_future(self._calls.submit(functools.partial(call, *given)))
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._seconds)
        except TimeoutError:
            self._pending = future
            future.add_done_callback(_forget_error)
            raise NvmlError(f"NVML did not answer in {self._seconds:g} s") from None

    async def xid(self, seconds: float) -> Xid | None:
        """Wait for an error of any card. Raises NvmlError."""
        call = functools.partial(self.nvml.xid, seconds)
        fault: Xid | None = await asyncio.wrap_future(self._events.submit(call))
        return fault

    def close(self) -> None:
        """Stop the threads after their pending calls, without waiting for them."""
        for thread in (self._calls, self._events):
            thread.close()

    @property
    def is_asking(self) -> bool:
        """Whether a call has not returned yet; it may never return."""
        return self._calls.is_busy


def _forget_error(future: "asyncio.Future[T]") -> None:
    """Retrieve the error of a call whose caller already got a timeout."""
    if not future.cancelled():
        future.exception()
