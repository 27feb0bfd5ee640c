"""Checked ledger: the ledger of a replica, whose every answer is shown to the checker."""

from ledger.core.model import commands
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.log.ledger_port import Accepted, Ledger
from simulation.oracle.checker import Checker


class CheckedLedger:
    """A ledger whose every answer is looked at."""

    def __init__(self, ledger: Ledger, checker: Checker) -> None:
        self._ledger = ledger
        self._checker = checker

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Decide a command; see `ledger.log.ledger_port.Ledger`."""
        arrived = self._checker.position
        answer = await self._ledger.submit(command, dry_run=dry_run)
        if dry_run:
            self._checker.dry(command)
        elif isinstance(answer, Accepted):
            self._checker.accepted(command, answer)
            if not answer.changed:
                self._checker.idle(command, arrived)
        elif isinstance(command, commands.Reserve):
            self._checker.denied(command, answer, arrived)
        return answer
