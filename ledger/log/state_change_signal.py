"""News: waiting until the ledger has moved on, for whoever would try again then."""

import asyncio
import contextlib

from ledger.log.ledger import StateView
from ledger.log.records import Record

LOOK_AGAIN_SECONDS = 1.0
"""How often somebody who waits looks without news: the reason may lie with another replica."""


class StateChangeSignal:
    """Wakes everybody who waits, after each record that was applied."""

    def __init__(self, view: StateView) -> None:
        """Hear of the records of a view from now on."""
        self._moved = asyncio.Event()
        view.subscribe(self._hear)

    async def wait(self, seconds: float) -> None:
        """Return after the next record, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, LOOK_AGAIN_SECONDS)):
                await self._moved.wait()

    def _hear(self, record: Record) -> None:
        """Wake who waits now; who comes later waits for the next record."""
        self._moved.set()
        self._moved = asyncio.Event()
