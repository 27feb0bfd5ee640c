"""Send moments: fixed moments of a load generator, by a timer of the kernel.

Timers of uvloop are due at whole milliseconds, and a shorter sleep returns at once. A load
generator that sleeps between two requests then computes all the time, and takes a processor from
the process that it measures. Python has `os.timerfd_create` since 3.13; this calls the C library.
"""

import asyncio
import ctypes
import os
import struct
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

_C_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
_MONOTONIC: Final = 1
"""The clock of the timer."""

_TICKS_BYTES: Final = 8
"""A timer is read as the number of its expirations since the last read."""

_NANOSECONDS: Final = 1_000_000_000


class Outcome(Enum):
    """The outcome of a moment: sent, nothing is left to send, or try again at the next tick."""

    SENT = auto()
    LAST = auto()
    LATER = auto()


class SendMoments:
    """Calls `send` for each of the moments, so many per second, until it returns `LAST`.

    `send` gets the moment by `time.perf_counter`. After a delay it is called for all moments that
    have passed.
    """

    def __init__(self, per_second: float, send: Callable[[float], Outcome]) -> None:
        self._per_second, self._send = per_second, send
        self._number = 0
        self._started = 0.0

    async def run(self) -> None:
        """Return when `send` has returned `LAST`. Raises OSError without a timer."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        timer = _periodic_timer(self._per_second)

        def due() -> None:
            try:
                os.read(timer, _TICKS_BYTES)
                if not self._send_all_due():
                    ended.set_result(None)
            except Exception as error:  # noqa: BLE001 - the caller of `run` gets every error
                ended.set_exception(error)
            if ended.done():
                loop.remove_reader(timer)

        self._started = time.perf_counter()
        try:
            loop.add_reader(timer, due)
            await ended
        finally:
            loop.remove_reader(timer)
            os.close(timer)

    def _send_all_due(self) -> bool:
        """Call `send` for each moment that has passed; return whether moments are left."""
        while (moment := self._started + self._number / self._per_second) <= time.perf_counter():
            outcome = self._send(moment)
            if outcome is not Outcome.SENT:
                return outcome is Outcome.LATER
            self._number += 1
        return True


def _periodic_timer(per_second: float) -> int:
    """Return the descriptor of a timer that expires so often. Raises OSError."""
    timer = int(_C_LIBRARY.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    period = divmod(int(_NANOSECONDS / per_second), _NANOSECONDS)
    if timer < 0 or _C_LIBRARY.timerfd_settime(timer, 0, struct.pack("4l", *period, *period), None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return timer
