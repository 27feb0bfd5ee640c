"""Recognising a log: whether it still is the one that a writer saw before it lost sight of it."""

import asyncio
from typing import NoReturn

from ledger.core.model.state import State
from ledger.log.log_port import Log, Lost, Unreachable
from ledger.log.recovery import head_witness
from ledger.log.recovery.head_witness import LogHead


class LogIdentity:
    """Compares a log with the state that a writer has applied.

    `is_unverified` says that the log could not be used: it may be another one when it is back.
    """

    def __init__(self, log: Log, behind_seconds_max: float) -> None:
        """Let the log tell an end before the one that was seen for so many seconds."""
        self.is_unverified = False
        self._log, self._behind_seconds_max = log, behind_seconds_max
        self._behind_since: float | None = None

    async def check(self, state: State, last: int) -> None:
        """Check a log that ends at a position. Raises Lost, Unreachable."""
        if last < state.position:
            self._find_behind(state, last)
        self._behind_since = None
        if self.is_unverified:
            await self.verify(state)

    async def verify(self, state: State) -> None:
        """Check that the log still holds the record that was applied last.

        A log that lost its end may have grown to its old length again, by others who never saw
        what was lost. Its extent alone would not tell. Raises Lost, Unreachable.
        """
        seen = LogHead(state.position, state.hash.hex(), "this replica")
        if not await head_witness.holds_record(self._log, seen):
            raise Unreachable(f"position {seen.position} cannot be read: a server may be behind")
        self.is_unverified = False

    def _find_behind(self, state: State, last: int) -> NoReturn:
        """The log ends before a position that was acknowledged: lost, unless that may pass."""
        now = asyncio.get_running_loop().time()
        since = self._behind_since = now if self._behind_since is None else self._behind_since
        found = f"the log ends at position {last}, but position {state.position} was acknowledged"
        if now - since < self._behind_seconds_max:
            raise Unreachable(f"{found}: a server may be behind")
        raise Lost(f"{found}: records are missing. Restore the log; see docs/how-to/operating.md")
