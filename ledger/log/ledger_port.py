"""Ledger port: the ledger as clients see it, with durable answers to commands, and its state."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log.records import Record


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The command holds at `position`, durably. `changed` is False when nothing had to be done.

    `decision` is the id of this decision in logs, denials and answers.
    """

    position: int
    decision: str
    changed: bool


class Ledger(Protocol):
    """Anything that decides commands: the writer, or a forwarder to the preferred writer."""

    def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Awaitable[Accepted | Denial]:
        """Decide a command; it is accepted only after its record is acknowledged.

        A plain function returns a future, which costs less than a coroutine. A dry run is decided
        by the same rules and writes nothing. Never raises for operating errors: an overloaded,
        unreachable or stopped ledger is a Denial with that reason.
        """
        ...


def answered(answer: Accepted | Denial) -> asyncio.Future[Accepted | Denial]:
    """Return a future that has this answer already. Needs a running event loop."""
    future: asyncio.Future[Accepted | Denial] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


class StateView(Protocol):
    """The state of a replica, to be read and never changed."""

    @property
    def state(self) -> State:
        """The state at the newest position that this replica has applied."""
        ...

    def subscribe(self, callback: Callable[[Record], None]) -> None:
        """Call back after every record that was applied."""
        ...
