"""A ledger whose answers are visible: given only when this replica has applied them, too.

Settlement decides what to tell next by looking at the state. Its commands may be decided by another
replica, the preferred writer, and the state here follows a moment later: a deletion that is seen
within that moment would look like the deletion of something that was never charged.
"""

import asyncio
from typing import Final

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.log import system_denials
from ledger.log.ledger import Accepted, Ledger
from ledger.log.records import Record
from ledger.log.state_view import View

APPLIED_SECONDS: Final = 10.0
"""How long an answer may wait until it is applied here; it is then asked for again."""


class Visible:
    """A `Ledger` in front of another, for whoever reads `view`."""

    def __init__(self, ledger: Ledger, view: View) -> None:
        """Ask `ledger`, and answer when `view` shows it."""
        self._ledger = ledger
        self._view = view
        self._applied = asyncio.Event()
        view.subscribe(self._wake)

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Decide a command; see `Ledger.submit`."""
        answer = await self._ledger.submit(command, dry_run=dry_run)
        if isinstance(answer, Denial):
            return answer
        try:
            async with asyncio.timeout(APPLIED_SECONDS):
                await self._shown(answer.position)
        except TimeoutError:
            return system_denials.unavailable(
                f"position {answer.position} holds, but this replica has not applied it within"
                f" {APPLIED_SECONDS:g} s"
            )
        return answer

    async def _shown(self, position: int) -> None:
        while self._view.state.position < position:
            self._applied.clear()
            await self._applied.wait()

    def _wake(self, record: Record) -> None:
        self._applied.set()
