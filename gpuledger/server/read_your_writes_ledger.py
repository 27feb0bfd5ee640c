"""Read-your-writes ledger: settlement gets an answer only after this replica has applied it.

Settlement derives its next command from the state of this replica, and the answer of another
replica is ahead of that state. Admission needs no read-your-writes, because it answers from the
denial or acceptance alone.
"""

import asyncio
from typing import Final

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.log import system_denials
from ledger.log.ledger_port import Accepted, Ledger, StateView
from ledger.log.records import Record

APPLIED_SECONDS: Final = 10.0
"""How long an answer may wait until this replica has applied it; the caller then asks again."""


class ReadYourWritesLedger:
    """Returns an answer when `view` has applied it.

    The preferred writer may be another replica, whose records this one applies a moment later.
    Until then, a deletion would look like that of an object without a charge.
    """

    def __init__(self, ledger: Ledger, view: StateView) -> None:
        """Decorate `ledger` for a reader of `view`."""
        self._ledger = ledger
        self._view = view
        self._applied = asyncio.Event()
        view.subscribe(self._on_record)

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Decide a command; see `Ledger.submit`.

        Denied as unavailable, though accepted, where this replica has not applied it after
        `APPLIED_SECONDS`: the same command again gets the same answer.
        """
        answer = await self._ledger.submit(command, dry_run=dry_run)
        if isinstance(answer, Denial):
            return answer
        try:
            async with asyncio.timeout(APPLIED_SECONDS):
                await self._wait_for(answer.position)
        except TimeoutError:
            return system_denials.unavailable(
                f"position {answer.position} holds, but this replica has not applied it within"
                f" {APPLIED_SECONDS:g} s"
            )
        return answer

    async def _wait_for(self, position: int) -> None:
        while self._view.state.position < position:
            self._applied.clear()
            await self._applied.wait()

    def _on_record(self, record: Record) -> None:
        self._applied.set()
