"""State change signal: wakes the tasks that wait for a record, because they may now succeed."""

import asyncio
import contextlib

from ledger.log.ledger_port import StateView
from ledger.log.records import Record

WAIT_SECONDS_MAX = 1.0
"""Longest wait without a record, because the cause of a wait may be in another replica."""


class StateChangeSignal:
    """Wakes all waiting tasks after each record that was applied."""

    def __init__(self, view: StateView) -> None:
        """Subscribe to the records of a view."""
        self._moved = asyncio.Event()
        view.subscribe(self._record_applied)

    async def wait(self, seconds: float) -> None:
        """Return after the next record, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, WAIT_SECONDS_MAX)):
                await self._moved.wait()

    def _record_applied(self, record: Record) -> None:
        """Wake the tasks that wait now; later ones wait for the next record."""
        self._moved.set()
        self._moved = asyncio.Event()
