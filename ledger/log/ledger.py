"""What those who ask the ledger see of it: submit a command, get an answer that is durable."""

from typing import Protocol

import msgspec

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial


class Accepted(msgspec.Struct, frozen=True):
    """The command holds at `position`, durably. `changed` is False when nothing had to be done.

    `decision` is the id under which logs, denials and answers know this decision.
    """

    position: int
    decision: str
    changed: bool


class Ledger(Protocol):
    """Anything that decides commands: the writer, or a forwarder to the preferred writer."""

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Decide a command; an acceptance is returned only after its record is acknowledged.

        A dry run is decided like the real thing and writes nothing. Never raises for operating
        errors: an overloaded, unreachable or stopped ledger is a Denial with that reason.
        """
        ...
