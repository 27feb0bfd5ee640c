"""The writer of one replica: decides commands in batches and appends one record per batch.

Each record is appended at exactly the next position, and its commands are answered only after its
acknowledgement. When another writer took the position first, the writer takes the batch's events
back, catches up, and decides the same commands again. When an append has an unclear outcome, the
writer reads the position: it holds this record, another writer's record, or nothing yet.

There is no lock and no leader: the expected position is the fence. One record is in flight at a
time, and no command waits for others to come, so batches grow with load.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log import record_schema, records, system_denials
from ledger.log.ledger_port import Accepted, answered
from ledger.log.log_port import (
    Full,
    Log,
    LogError,
    Lost,
    PositionTaken,
    RecordTooLarge,
    Unwritable,
)
from ledger.log.recovery import replay
from ledger.log.recovery.log_end_check import LogHead
from ledger.log.writer.batch_decider import Batch, BatchDecider, FairQueue, Ticket
from ledger.log.writer.denial_log import DenialLog
from ledger.log.writer.exactly_once import ExactlyOnceAppender
from ledger.log.writer.log_capacity import LogCapacity
from ledger.log.writer.log_identity import LogIdentity
from ledger.log.writer.outage import Outage
from ledger.log.writer.writer_observer import Answer, WriterObserver
from ledger.log.writer.writer_settings import WriterSettings
from ledger.tasks.backoff import Backoff

RAISE_ATTEMPTS_MAX: Final = 1_000
"""Attempts to append the first record of a schema. Each takes two requests, some milliseconds."""


class Writer:
    """One replica's writer of a shard. `state` and `capacity` are for reading only."""

    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(
        self,
        log: Log,
        *,
        name: str,
        now: Callable[[], int],
        nonces: Callable[[], str],
        settings: WriterSettings | None = None,
        observer: WriterObserver | None = None,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`now` returns µs of Unix time; `nonces` makes a fresh nonce for each record."""
        self.settings = given = settings or WriterSettings()
        self.state = State()
        self.stopped: str | None = None
        self.name, self._log = name, log
        self._now, self._nonces, self._stopwatch = now, nonces, stopwatch
        self._observer = observer = observer or WriterObserver()
        self._queue = FairQueue(
            total_max=given.queue_commands_max, namespace_max=given.queue_namespace_max
        )
        self._queued, self._refresh_requested = asyncio.Event(), False
        self._batch: Batch | None = None
        self._callbacks: list[Callable[[records.Record], None]] = []
        self._denial_log = DenialLog(
            log, given.denials_waiting_max, on_dropped=observer.denial_dropped
        )
        self._identity = LogIdentity(log, given.behind_seconds_max)
        self.capacity = LogCapacity(given.namespace_bytes_burst, given.namespace_bytes_rate)
        self._outage = Outage(
            given,
            capacity=self.capacity,
            identity=self._identity,
            refuse_waiting=self._refuse_waiting,
        )
        self._decider = BatchDecider(
            self._queue,
            self.capacity,
            settings=given,
            outage=self._outage,
            observer=observer,
            stopwatch=stopwatch,
        )
        self._appender = ExactlyOnceAppender(
            log,
            given,
            observer=observer,
            verify_identity=lambda: self._identity.verify(self.state),
            mark_unreachable=self._outage.mark_unreachable,
        )

    @property
    def head(self) -> LogHead:
        """The position and hash this writer has applied."""
        return LogHead(self.state.position, self.state.hash.hex())

    @property
    def unavailable(self) -> str | None:
        """The reason for which the log is unreachable or stores nothing, None without an outage."""
        return self._outage.reason

    @property
    def is_writable(self) -> bool:
        """Whether the log stores records, as far as is known."""
        return self._outage.unwritable is None

    @property
    def waiting(self) -> int:
        """How many commands wait to be decided."""
        return self._queue.size + len(self._decider.undecided)

    def subscribe(self, callback: Callable[[records.Record], None]) -> None:
        """Call back after every record that was applied, own or not, in order."""
        self._callbacks.append(callback)

    async def open(
        self,
        witnesses: Sequence[LogHead] = (),
        on_progress: replay.Progress | None = None,
    ) -> None:
        """Bring the state to the log's end. Raises Lost, records.NewerSchema, Unreachable."""
        self.state = await replay.open_state(
            self._log, witnesses=witnesses, on_progress=on_progress
        )
        self.state.journal = []
        self.capacity.note(await self._log.extent())
        self._outage.opened()

    def submit(
        self, command: AnyCommand, *, dry_run: bool = False
    ) -> asyncio.Future[Accepted | Denial]:
        """Queue a command and return the future of its durable answer; see `Ledger.submit`.

        A cancelled future takes its command back as long as no batch contains it.
        """
        if self.stopped is not None:
            return self._answered(system_denials.stopped(self.stopped))
        outage, loop = self._outage, self._loop or self._running_loop()
        if (outage.unreachable or outage.unwritable) and (refusal := outage.refusal()) is not None:
            # The writer goes on trying by itself, so this command need not wait for it.
            return self._answered(refusal)
        answer: asyncio.Future[Accepted | Denial] = loop.create_future()
        ticket = Ticket(command, dry_run, answer, loop.time() + self.settings.command_seconds_max)
        if not self._queue.put(getattr(command, "namespace", ""), ticket):
            return self._answered(
                system_denials.overloaded(f"{self._queue.size} requests are waiting already")
            )
        self._queued.set()
        return answer

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop and keep it, because CPython 3.11 asks the kernel each time."""
        self._loop = asyncio.get_running_loop()
        return self._loop

    def request_refresh(self) -> None:
        """Read the end of the log soon, because another writer may have appended."""
        self._refresh_requested = True
        self._queued.set()

    def stop(self, reason: str) -> None:
        """Decide nothing more, for good: the log was found not to be intact."""
        self.stopped = reason
        self._queued.set()

    async def run(self) -> None:
        """Serve until cancelled, stopped, or the log turns out to be lost or too new."""
        keeping = asyncio.create_task(self._denial_log.run())
        try:
            reason = await self._serve_until_stopped()
            self._answer_all(system_denials.stopped(reason))
        except (Lost, records.NewerSchema) as error:
            self.stopped = str(error)
            self._answer_all(system_denials.stopped(self.stopped))
        finally:
            keeping.cancel()
            self.state.undo()
            self._answer_all(system_denials.unavailable("this replica is shutting down"))

    async def _serve_until_stopped(self) -> str:
        """Serve the commands that come, and return the reason for which the writer stopped."""
        while self.stopped is None:
            try:
                async with asyncio.timeout(self.settings.refresh_seconds):
                    await self._queued.wait()
            except TimeoutError:
                await self._refresh()
                continue
            if self._refresh_requested:
                self._refresh_requested = False
                await self._refresh()
            await self._serve_queued()
        return self.stopped

    async def _serve_queued(self) -> None:
        """Decide and store the waiting commands, until none is left or the log stores nothing."""
        backoff: Backoff | None = None
        while self.stopped is None:
            batch = await self._decide_batch()
            try:
                if await self._store_batch(batch):
                    self._batch = None
                    if not self._decider.undecided:
                        return
                    continue
            except Lost:
                raise
            except RecordTooLarge as error:
                # A server that takes less than was expected: smaller records from now on.
                self._decider.record_bytes_max = error.most
            except (Full, Unwritable) as error:
                if self._outage.is_unwritable(error, len(batch.payload)):
                    return
            except LogError as error:
                self._outage.mark_unreachable(error)
                if backoff is None:
                    backoff = Backoff(self.settings.retry_seconds, self.settings.retry_seconds_max)
                await backoff.wait()
            self.state.undo()
            self._decider.undecided.extendleft(reversed(batch.tickets()))

    async def _decide_batch(self) -> Batch:
        """Decide waiting commands until none is left or the batch is full."""
        batch = self._batch = Batch(self._nonces(), self.name)
        await self._decider.decide(self.state, batch, max(self.state.time, self._now()))
        is_idle = not self._queue.size and not self._decider.undecided
        if is_idle and not self._refresh_requested:
            self._queued.clear()
        return batch

    async def _store_batch(self, batch: Batch) -> bool:
        """Append a batch's record and answer its commands; False when it must be decided again."""
        if self._identity.is_unverified and batch.answers:
            return await self._start_over()
        if batch.record is None:
            # Without an append nothing else shows that the state is as new as the commands are,
            # and "nothing is left to do" is as wrong on an old state as a denial is.
            if batch.answers and not await self._catch_up():
                return False
            self._answer_batch(batch, self.state.position)
            return True
        started = self._stopwatch()
        if not await self._append(batch, batch.record, self._appender.store):
            self._observer.conflicted()
            return await self._start_over()
        seconds = self._stopwatch() - started
        self._answer_batch(batch, batch.record.position)
        self._observer.batch_stored(len(batch.answers), len(batch.payload), seconds)
        for callback in self._callbacks:
            callback(batch.record)
        return True

    async def _append(
        self,
        batch: Batch,
        record: records.Record,
        store: Callable[[bytes, int], Awaitable[bool]],
    ) -> bool:
        """Store a batch's record and seal the state with it; False when another is there."""
        if not await store(batch.payload, record.position):
            return False
        self.state.seal(record.position, batch.hash, record.time)
        self.state.schema = records.schema_of(batch.payload)
        now = asyncio.get_running_loop().time()
        self.capacity.add(record.position, len(batch.payload), batch.namespace_bytes, now)
        if self._outage.unreachable is not None or self._outage.unwritable is not None:
            self._outage.end()
        return True

    async def _start_over(self) -> bool:
        """Undo the batch's events and catch up, so that it is decided again. Returns False."""
        self.state.undo()
        await self._catch_up()
        return False

    async def _catch_up(self) -> bool:
        """Return whether the state is at the log's end; if not, bring it there. Raises Lost."""
        self.capacity.note(await self._log.extent())
        last = self.capacity.extent.last
        await self._identity.check(self.state, last)
        is_current = last == self.state.position
        if not is_current:
            await replay.catch_up(self._log, self.state, last, on_record=self._take_foreign)
            self._outage.end()
        self._outage.log_was_read()
        return is_current

    def _refuse_waiting(self, denial: Denial) -> None:
        """Undo what the batch decided and refuse all waiting commands."""
        self.state.undo()
        self._answer_all(denial)

    async def raise_schema(self) -> None:
        """Append a record without items of the newest schema, unless the log has it already.

        Only for a writer that is opened and does not run. Raises LogError; PositionTaken when
        other writers were faster in each of `RAISE_ATTEMPTS_MAX` attempts.
        """
        attempts = 0
        while 0 < self.state.schema < record_schema.SCHEMA:
            if attempts == RAISE_ATTEMPTS_MAX:
                raise PositionTaken(
                    f"other writers appended first in {attempts} attempts, so the schema stays"
                    f" {self.state.schema}: try again when fewer objects are created"
                )
            attempts += 1
            await self._store_empty_record(record_schema.SCHEMA)

    async def _store_empty_record(self, schema: int = 0) -> None:
        """Append a record without items, which promises nothing. Raises as an append does."""
        batch = Batch(self._nonces(), self.name)
        time_us = max(self.state.time, self._now())
        record, batch.payload, batch.hash = records.next_record(
            self.state, time_us, batch.writer, batch.nonce, group=0, items=[], schema=schema
        )
        if not await self._append(batch, record, self._appender.send):
            await self._catch_up()
            return
        for callback in self._callbacks:
            callback(record)

    async def _refresh(self) -> None:
        """Read the end of the log while no command waits."""
        try:
            await self._catch_up()
        except Lost:
            raise
        except LogError as error:
            self._outage.mark_unreachable(error)
            return
        await self._outage.probe_when_due(self._store_empty_record)

    def _take_foreign(self, record: records.Record) -> None:
        """Note a record that another writer stored."""
        self.capacity.take_shares(record.items, asyncio.get_running_loop().time())
        for callback in self._callbacks:
            callback(record)

    def _answer_batch(self, batch: Batch, position: int) -> None:
        prefix = batch.nonce[:8]
        observed = self._observer.decided
        for index, (ticket, verdict) in enumerate(batch.answers):
            decision, future = f"{prefix}-{index}", ticket.answer
            if verdict is True or verdict is False:
                if not future.done():
                    accepted = Accepted(position, decision, verdict)
                    observed(accepted)
                    future.set_result(accepted)
                continue
            denial = msgspec.structs.replace(verdict, decision=decision)
            if not ticket.dry_run:
                self._denial_log.keep(ticket.command, denial, position, self._now())
            self._resolve(ticket, denial)

    def _resolve(self, ticket: Ticket, answer: Answer) -> None:
        if not ticket.answer.done():
            self._observer.decided(answer)
            ticket.answer.set_result(answer)

    def _answered(self, denial: Denial) -> asyncio.Future[Accepted | Denial]:
        self._observer.decided(denial)
        return answered(denial)

    def _answer_all(self, denial: Denial) -> None:
        decided = self._batch.tickets() if self._batch is not None else []
        for ticket in (*decided, *self._decider.undecided):
            self._resolve(ticket, denial)
        self._batch = None
        self._decider.undecided.clear()
        while self._queue.size:
            self._resolve(self._queue.take(), denial)
