"""Ledger port: the ledger as clients see it, with durable answers to commands, and its state."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log.records import Record


class Accepted(msgspec.Struct, frozen=True):
    """The command holds at `position`, durably. `changed` is False when nothing had to be done.

    `decision` is the id of this decision in logs, denials and answers.
    """

    position: int
    decision: str
    changed: bool


class Ledger(Protocol):
    """Anything that decides commands: the writer, or a forwarder to the preferred writer."""

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Decide a command; an acceptance is returned only after its record is acknowledged.

        A dry run is decided by the same rules and writes nothing. Never raises for operating
        errors: an overloaded, unreachable or stopped ledger is a Denial with that reason.
        """
        ...


class StateView(Protocol):
    """The state of a replica, to be read and never changed."""

    @property
    def state(self) -> State:
        """The state at the newest position that this replica has applied."""
        ...

    def subscribe(self, callback: Callable[[Record], None]) -> None:
        """Call back after every record that was applied."""
        ...
