"""Faulty log: the connection to a log in memory, with faults that the seed decides.

Requests in flight outlive their sender, so a killed replica may still have appended a record.
"""

import asyncio
import random
from typing import Final

import msgspec

from ledger.log.memory_log import CallFate, Fault, MemoryLog
from simulation.engine.processes import outside


class FaultRates(msgspec.Struct, frozen=True):
    """How bad the way is: the share of calls that fail and of calls that are slow."""

    trouble: float = 0.0
    slow: float = 0.0


NO_FAULTS: Final = FaultRates()

HOP_SECONDS_MAX: Final = 0.004
SLOW_SECONDS_MAX: Final = 1.5
LATE_SECONDS_MAX: Final = 4.0

_APPENDING: Final = (
    CallFate.REQUEST_LOST,
    CallFate.ACK_LOST,
    CallFate.ACK_LOST,
    CallFate.LATE,
    CallFate.LATE,
    CallFate.UNREACHABLE,
    CallFate.FULL,
)


class SeededFaults:
    """Decides what becomes of one client's calls. `cut_off`: nothing gets through."""

    def __init__(self, source: random.Random) -> None:
        self.weather = NO_FAULTS
        self.cut_off = False
        self._source = source

    def strike(self, call: str) -> Fault:
        """Return the fault of the next call; see `ledger.log.memory_log.Faults`."""
        source, weather = self._source, self.weather
        before, after = source.random() * HOP_SECONDS_MAX, 0.0
        if source.random() < weather.slow:
            before = source.random() * SLOW_SECONDS_MAX
            after = source.random() * SLOW_SECONDS_MAX
        fate = CallFate.DELIVERED
        if self.cut_off:
            fate = CallFate.UNREACHABLE
        elif source.random() < weather.trouble:
            fate = source.choice(_APPENDING) if call == "append" else CallFate.UNREACHABLE
        late = source.random() * LATE_SECONDS_MAX if fate is CallFate.LATE else 0.0
        return Fault(fate, before=before, after=after, late=late)


class DistantLog(MemoryLog):
    """A client whose appends arrive even when it is killed after it has sent them."""

    async def append(self, payload: bytes, expected: int) -> int:
        """Store a record; see `ledger.log.log_port.Log`."""
        sent = outside(super().append(payload, expected))
        sent.add_done_callback(_heard)
        return await asyncio.shield(sent)


def _heard(sent: "asyncio.Task[int]") -> None:
    """Retrieve the outcome, in case no task waits for it any more."""
    if not sent.cancelled():
        sent.exception()
