"""Log identity: whether a log still is the log of a writer's state, after an outage."""

import asyncio
from typing import NoReturn

from ledger.core.model.state import State
from ledger.log.log_port import Log, Lost, Unreachable
from ledger.log.recovery import log_end_check
from ledger.log.recovery.log_end_check import LogHead


class LogIdentity:
    """Compares a log with the state that a writer has applied.

    `is_unverified` is set after an outage, because the log may be another one since.
    """

    def __init__(self, log: Log, behind_seconds_max: float) -> None:
        """Tolerate an end before the applied position for so many seconds."""
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

        A log that lost its end may have grown to its old length again, by writers that never read
        the lost records. Its extent alone would not show that. Raises Lost, Unreachable.
        """
        seen = LogHead(state.position, state.hash.hex(), "this replica")
        if not await log_end_check.holds_record(self._log, seen):
            raise Unreachable(f"position {seen.position} cannot be read: a server may be behind")
        self.is_unverified = False

    def _find_behind(self, state: State, last: int) -> NoReturn:
        """Raise Lost for a log that ends before the applied position, or first Unreachable."""
        now = asyncio.get_running_loop().time()
        since = self._behind_since = now if self._behind_since is None else self._behind_since
        problem = f"the log ends at position {last}, but position {state.position} was acknowledged"
        if now - since < self._behind_seconds_max:
            raise Unreachable(f"{problem}: a server may be behind")
        raise Lost(f"{problem}: records are missing. Restore the log; see docs/how-to/operating.md")
