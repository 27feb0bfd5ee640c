"""Groups: commands that are decided together, and the one record that makes their answers true."""

import asyncio

import msgspec

from ledger.core.commands import AnyCommand
from ledger.core.denials import Denial
from ledger.core.state import State
from ledger.log import records
from ledger.log.submission import Accepted


class Ticket(msgspec.Struct, eq=False):
    """A waiting command and the future of whoever waits until loop time `deadline`."""

    command: AnyCommand
    dry_run: bool
    answer: "asyncio.Future[Accepted | Denial]"
    deadline: float


class Group:
    """Answers by ticket: a denial, or whether the command changed anything.

    `record` is None when it has no events; `payload` and `hash` are those of the record.
    """

    __slots__ = ("answers", "hash", "items", "nonce", "payload", "record")

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self.answers: list[tuple[Ticket, Denial | bool]] = []
        self.items: list[records.Item] = []
        self.record: records.Record | None = None
        self.payload = b""
        self.hash = b""

    def tickets(self) -> list[Ticket]:
        """Return the tickets in the order in which they were decided."""
        return [ticket for ticket, _ in self.answers]

    def seal(self, state: State, writer: str, time: int) -> None:
        """Make the record that follows on a state, at a time in µs of Unix time."""
        if not self.items:
            return
        self.record = records.Record(
            state.position + 1,
            time,
            writer,
            self.nonce,
            state.hash,
            len(self.answers),
            self.items,
        )
        self.payload, self.hash = records.encode(self.record)
