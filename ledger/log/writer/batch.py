"""Groups: commands that are decided together, and the one record that makes their answers true."""

import asyncio

import msgspec

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.ledger import Accepted


class Ticket(msgspec.Struct, eq=False):
    """A waiting command and the future of whoever waits until loop time `deadline`."""

    command: AnyCommand
    dry_run: bool
    answer: "asyncio.Future[Accepted | Denial]"
    deadline: float


class Batch:
    """Answers by ticket: a denial, or whether the command changed anything.

    `size` is that of the record, in bytes, and `head` that of one without items. `record` is None
    when it has no events; `payload` and `hash` are those of the record.
    """

    __slots__ = ("answers", "hash", "head", "items", "nonce", "payload", "record", "size", "writer")

    def __init__(self, nonce: str, writer: str) -> None:
        self.nonce, self.writer = nonce, writer
        self.head = records.HEAD_BYTES_MAX + len(nonce) + len(writer)
        self.size = self.head
        self.answers: list[tuple[Ticket, Denial | bool]] = []
        self.items: list[records.Item] = []
        self.record: records.Record | None = None
        self.payload = b""
        self.hash = b""

    def tickets(self) -> list[Ticket]:
        """Return the tickets in the order in which they were decided."""
        return [ticket for ticket, _ in self.answers]

    def seal(self, state: State, time: int) -> None:
        """Make the record that follows on a state, at a time in µs of Unix time."""
        if self.items:
            self.seal_always(state, time)

    def seal_always(self, state: State, time: int) -> records.Record:
        """Make the record also when it has no items: it shows that the log stores something."""
        self.record = records.Record(
            state.position + 1,
            time,
            self.writer,
            self.nonce,
            state.hash,
            len(self.answers),
            self.items,
        )
        self.payload, self.hash = records.encode(self.record)
        return self.record
