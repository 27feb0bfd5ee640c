"""Batch decider: the fair queue of commands, and the decision of a batch that becomes one record.

Namespaces take turns in the queue, so the commands of a busy namespace delay no other namespace.

The events of a command are applied ahead of the record, so that the next command is decided on top
of them. A command whose events do not fit into the log, or whose namespace is over its share of the
log, is refused alone, and its events are taken back.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from ledger.core.decide import decider
from ledger.core.evolve import evolver
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log import record_schema, records, system_denials
from ledger.log.ledger_port import Accepted
from ledger.log.writer.log_capacity import LogCapacity
from ledger.log.writer.outage import Outage
from ledger.log.writer.writer_observer import WriterObserver
from ledger.log.writer.writer_settings import WriterSettings

BALANCE_MAX: Final = 2**62
"""Largest balance that a record may hold; readers and projections keep 64 bits with a sign."""

_log: Final = structlog.get_logger("ledger.log")


class Ticket(msgspec.Struct, eq=False):
    """A waiting command and the future of its caller, who waits until loop time `deadline`."""

    command: AnyCommand
    dry_run: bool
    answer: "asyncio.Future[Accepted | Denial]"
    deadline: float


class FairQueue:
    """Waiting tickets: first in, first out within a namespace; round robin between namespaces.

    The commands of a busy namespace wait behind each other, and not in front of other namespaces.
    The queue is bounded; `size` counts the tickets. A ticket that waits alone in its namespace
    needs no queue of its own.
    """

    def __init__(self, *, total_max: int, namespace_max: int) -> None:
        self._waiting: dict[str, Ticket | deque[Ticket]] = {}
        self._turns: deque[str] = deque()
        self._total_max = total_max
        self._namespace_max = namespace_max
        self.size = 0

    def put(self, namespace: str, ticket: Ticket) -> bool:
        """Queue a ticket; False when the queue or the namespace's part of it is full."""
        if self.size >= self._total_max:
            return False
        waiting = self._waiting.get(namespace)
        if waiting is None:
            self._waiting[namespace] = ticket
            self._turns.append(namespace)
        elif isinstance(waiting, Ticket):
            if self._namespace_max < 2:
                return False
            self._waiting[namespace] = deque((waiting, ticket))
        elif len(waiting) < self._namespace_max:
            waiting.append(ticket)
        else:
            return False
        self.size += 1
        return True

    def take(self) -> Ticket:
        """Take a ticket of the next namespace. Raises IndexError when empty."""
        namespace = self._turns.popleft()
        waiting = self._waiting.pop(namespace)
        self.size -= 1
        if isinstance(waiting, Ticket):
            return waiting
        ticket = waiting.popleft()
        if waiting:
            self._turns.append(namespace)
            self._waiting[namespace] = waiting
        return ticket


class Batch:
    """Commands that are decided together, and the one record that makes their answers true.

    `answers` has a denial for each ticket, or whether the command changed anything. `size` is that
    of the record, in bytes, and `head` that of a record without items. `encoded` are the bytes of
    the items. `namespace_bytes` has the number of those about each namespace. `record` is None
    until all commands are decided, and when they have no events; `payload` and `hash` are those of
    the record.
    """

    __slots__ = (
        "answers",
        "encoded",
        "hash",
        "head",
        "items",
        "namespace_bytes",
        "nonce",
        "payload",
        "record",
        "size",
        "writer",
    )

    def __init__(self, nonce: str, writer: str) -> None:
        self.nonce, self.writer = nonce, writer
        self.head = records.HEAD_BYTES_MAX + len(nonce) + len(writer)
        self.size = self.head
        self.answers: list[tuple[Ticket, Denial | bool]] = []
        self.items: list[records.Item] = []
        self.encoded: list[bytes] = []
        self.namespace_bytes: dict[str, int] = {}
        self.record: records.Record | None = None
        self.payload = b""
        self.hash = b""

    def tickets(self) -> list[Ticket]:
        """Return the tickets in the order in which they were decided."""
        return [ticket for ticket, _ in self.answers]

    def cut(self, count: int) -> None:
        """Drop the items after the first `count`."""
        del self.items[count:]
        del self.encoded[count:]


class BatchDecider:
    """Decides the commands of one writer.

    `undecided` are tickets that were taken from the queue and have to be decided first.
    `record_bytes_max` is the size of the largest record that a batch may become.
    """

    def __init__(
        self,
        queue: FairQueue,
        capacity: LogCapacity,
        *,
        settings: WriterSettings,
        outage: Outage,
        observer: WriterObserver,
        stopwatch: Callable[[], float],
    ) -> None:
        """`outage` names the reason for a command that was not decided in time."""
        self.undecided: deque[Ticket] = deque()
        self.record_bytes_max = settings.record_bytes_max
        self._queue, self._capacity, self._settings = queue, capacity, settings
        self._outage, self._observer, self._stopwatch = outage, observer, stopwatch

    async def decide(self, state: State, batch: Batch, time_us: int) -> None:
        """Decide undecided, then queued commands until the batch is full, and make its record.

        Events are applied to `state`. The event loop is released after each slice; the observer
        gets the time of each, the last one with that of making the record.
        """
        started = self._stopwatch()
        while self._decide_slice(state, batch, time_us, started):
            self._observer.blocked(self._stopwatch() - started)
            await asyncio.sleep(0)
            started = self._stopwatch()
        if batch.items:
            batch.record, batch.payload, batch.hash = records.next_record(
                state,
                time_us,
                batch.writer,
                batch.nonce,
                group=len(batch.answers),
                items=batch.items,
                encoded=batch.encoded,
            )
        self._observer.blocked(self._stopwatch() - started)

    def _decide_slice(self, state: State, batch: Batch, time_us: int, started: float) -> bool:
        """Decide for as long as the event loop may be held, since the stopwatch showed `started`.

        Return whether there is more to do.
        """
        clock = asyncio.get_running_loop().time()
        most, slice_seconds = self._settings.group_commands_max, self._settings.slice_seconds_max
        answers, undecided, queue = batch.answers, self.undecided, self._queue
        more = True
        while more and len(answers) < most:
            if undecided:
                ticket = undecided.popleft()
            elif queue.size:
                ticket = queue.take()
            else:
                more = False
                break
            # The caller of a command with an answer waits no longer.
            if not ticket.answer.done():
                more = self._decide_ticket(state, batch, ticket, time_us=time_us, clock=clock)
            if not len(answers) & 15 and self._stopwatch() - started > slice_seconds:
                break
        return more and len(answers) < most

    def _decide_ticket(
        self, state: State, batch: Batch, ticket: Ticket, *, time_us: int, clock: float
    ) -> bool:
        """Decide a command, unless its deadline has passed; False: the batch is full."""
        if clock > ticket.deadline:
            late = system_denials.unavailable(self._outage.reason or "it did not answer in time")
            self._observer.decided(late)
            ticket.answer.set_result(late)
            return True
        journal = state.journal
        assert journal is not None, "the writer decides ahead only on a journaled state"
        mark, count = len(journal), len(batch.items)
        try:
            verdict = self._verdict(state, batch, ticket, time_us, clock)
        except Exception as error:  # noqa: BLE001 - a defect may cost one command, not the service
            verdict = self._refuse_defect(error)
        if verdict is not True:
            state.undo(mark)
            batch.cut(count)
        if verdict is None:
            self.undecided.appendleft(ticket)
            return False
        batch.answers.append((ticket, verdict))
        return True

    def _verdict(
        self, state: State, batch: Batch, ticket: Ticket, time_us: int, clock: float
    ) -> Denial | bool | None:
        """Return a denial, or whether the command changed anything; None: the batch is full.

        Events are applied to `state` and added to `batch`. If True is not returned, the caller
        takes them back.
        """
        command = ticket.command
        decision = decider.HANDLERS[type(command)](state, command)
        if isinstance(decision, Denial):
            return decision
        if not decision:
            return False
        refusal = self._capacity.refusal(command, batch.size, clock)
        if refusal is not None:
            return refusal
        schema = record_schema.to_seal(state.schema)
        if schema < record_schema.SCHEMA:
            record_schema.must_fit(decision, schema)
        if ticket.dry_run:
            return False
        items, encoded, count = batch.items, batch.encoded, len(batch.items)
        size = 0
        for event in decision:
            item = records.Item(event, evolver.evolve(state, event, time_us))
            if item.postings and max(item.postings) > BALANCE_MAX:
                raise OverflowError("a balance would need more than 64 bits")
            items.append(item)
            encoded.append(records.encode_item(item))
            size += len(encoded[-1])
        room = self._capacity.room
        largest = self.record_bytes_max if room is None else min(self.record_bytes_max, room)
        if batch.size + size > largest:
            alone = batch.head + size
            return self._too_large(alone) if alone > largest else None
        batch.size += size
        taken = batch.namespace_bytes
        for index in range(count, len(items)):
            namespace = getattr(items[index].event, "namespace", "")
            taken[namespace] = taken.get(namespace, 0) + len(encoded[index])
        return True

    def _too_large(self, size: int) -> Denial:
        """Refuse a command whose events need a record of so many bytes."""
        if size > self.record_bytes_max:
            return system_denials.too_large(size, self.record_bytes_max)
        return system_denials.no_room(size, self._capacity.shown())

    def _refuse_defect(self, error: Exception) -> Denial:
        """Refuse the one command that meets a defect of gpuledger, and log the defect."""
        problem = f"{type(error).__name__}: {error}"
        self._observer.contradicted(problem)
        _log.error("command_met_a_defect", problem=problem, exc_info=error)
        return system_denials.defective(problem)
