"""The writer: the only one that appends.

It takes what is queued, decides one command after the other on the running state, publishes one
record at exactly the next position and waits. Only when the record is acknowledged is anybody
answered. If somebody else wrote that position first, what was decided is taken back, the state
catches up and the same commands are decided again. If it is unclear whether the record was stored,
the position itself tells: what stands there is ours, somebody else's, or nothing yet.

There is no lock and no leader in this: the expected position is the fence. One record is in flight
at a time and nothing waits for more commands to come, so groups grow with load.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log import records, system_denials
from ledger.log.ledger import Accepted
from ledger.log.port import Ambiguous, Full, Log, LogError, Lost, RecordTooLarge, Unwritable
from ledger.log.recovery import replay
from ledger.log.recovery.head_witness import LogHead
from ledger.log.writer.appender import Appender
from ledger.log.writer.batch import Batch, Ticket
from ledger.log.writer.denial_log import DenialLog
from ledger.log.writer.fair_queue import FairQueue
from ledger.log.writer.log_identity import LogIdentity
from ledger.log.writer.log_space import LogSpace
from ledger.log.writer.namespace_shares import NamespaceShares
from ledger.log.writer.observer import Answer, WriterObserver
from ledger.log.writer.outage import Outage
from ledger.log.writer.trial_decision import TrialDecider
from ledger.log.writer.writer_limits import WriterSettings
from ledger.tasks.backoff import Backoff


class Writer:
    """One replica's writer of a shard. `state` and `space` are for reading, never to be changed."""

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
        """`now` tells µs of Unix time; `nonces` makes a fresh one per record."""
        self.settings = settings or WriterSettings()
        self.state = State()
        self.stopped: str | None = None
        probing = Backoff(self.settings.probe_seconds, self.settings.probe_seconds_max)
        self._outage = Outage("the log has not been opened yet", probing)
        self.name, self._log = name, log
        self._now, self._nonces, self._stopwatch = now, nonces, stopwatch
        self._observer = observer or WriterObserver()
        self._queue: FairQueue[Ticket] = FairQueue(
            total_max=self.settings.queue_commands_max, lane_max=self.settings.queue_namespace_max
        )
        self._queued = asyncio.Event()
        self._undecided: deque[Ticket] = deque()
        self._batch = Batch("", self.name)
        self._callbacks: list[Callable[[records.Record], None]] = []
        self._denial_log = DenialLog(
            log, self.settings.denials_waiting_max, on_dropped=self._observer.denial_dropped
        )
        self._refresh_requested = False
        self._identity = LogIdentity(log, self.settings.behind_seconds_max)
        self.space, given = LogSpace(), self.settings
        self._shares = NamespaceShares(given.namespace_bytes_burst, given.namespace_bytes_rate)
        self._decider = TrialDecider(
            self._shares,
            self.space,
            observer=self._observer,
            clock=_clock,
            record_bytes_max=given.record_bytes_max,
        )
        self._appender = Appender(
            log,
            given,
            observer=self._observer,
            verify_identity=lambda: self._identity.verify(self.state),
            mark_unreachable=self._mark_unreachable,
        )

    @property
    def head(self) -> LogHead:
        """The position and hash this writer has applied."""
        return LogHead(self.state.position, self.state.hash.hex())

    @property
    def unavailable(self) -> str | None:
        """Why the log is out of reach or stores nothing, None while all is well."""
        return self._outage.reason

    @property
    def is_writable(self) -> bool:
        """Whether the log stores records, as far as is known."""
        return self._outage.unwritable is None

    @property
    def waiting(self) -> int:
        """How many commands wait to be decided."""
        return len(self._queue) + len(self._undecided)

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
        self.space.note(await self._log.extent())
        self._outage.reached()

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Answer:
        """Queue a command and wait for its durable answer; see `Ledger.submit`."""
        if self.stopped is not None:
            return self._answered(system_denials.stopped(self.stopped))
        if self._outage.unwritable or self._outage.lasts(self.settings.outage_seconds):
            # The writer keeps looking by itself; whoever asks need not wait for it.
            return self._answered(self._outage.denial())
        deadline = _clock() + self.settings.command_seconds_max
        future = asyncio.get_running_loop().create_future()
        ticket = Ticket(command, dry_run, future, deadline)
        if not self._queue.put(getattr(command, "namespace", ""), ticket):
            return self._answered(
                system_denials.overloaded(f"{len(self._queue)} requests are waiting already")
            )
        self._queued.set()
        return await ticket.answer

    def request_refresh(self) -> None:
        """Look at the log soon: somebody else may have written."""
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
            while self.stopped is None:
                await self._serve_once()
            self._answer_all(system_denials.stopped(self.stopped))
        except (Lost, records.NewerSchema) as error:
            self.stopped = str(error)
            self._answer_all(system_denials.stopped(self.stopped))
        finally:
            keeping.cancel()
            self.state.undo()
            self._answer_all(system_denials.unavailable("this replica is shutting down"))

    async def _serve_once(self) -> None:
        try:
            async with asyncio.timeout(self.settings.refresh_seconds):
                await self._queued.wait()
        except TimeoutError:
            await self._refresh()
            return
        if self._refresh_requested:
            self._refresh_requested = False
            await self._refresh()
        await self._serve_queued()

    async def _serve_queued(self) -> None:
        """Decide and store what waits, until nothing does or the log stores nothing."""
        backoff = Backoff(self.settings.retry_seconds, self.settings.retry_seconds_max)
        while self.stopped is None:
            batch = await self._decide_batch(self.settings.group_commands_max)
            try:
                if await self._store_batch(batch):
                    self._batch = Batch("", self.name)
                    if not self._undecided:
                        return
                    continue
            except Lost:
                raise
            except RecordTooLarge as error:
                # A server that takes less than was expected: smaller records from now on.
                self._decider.record_bytes_max = error.most
            except (Full, Unwritable) as error:
                if self._is_unwritable(error, batch):
                    return
            except LogError as error:
                self._mark_unreachable(error)
                await backoff.wait()
            self.state.undo()
            self._undecided.extendleft(reversed(batch.tickets()))

    async def _decide_batch(self, most: int) -> Batch:
        """Decide what is in hand, then what is queued, until the batch is full."""
        batch = self._batch = Batch(self._nonces(), self.name)
        time_us = max(self.state.time, self._now())
        more = self._decide_slice(batch, most, time_us)
        while more:
            await asyncio.sleep(0)
            more = self._decide_slice(batch, most, time_us)
        batch.seal(self.state, time_us)
        return batch

    def _decide_slice(self, batch: Batch, most: int, time_us: int) -> bool:
        """Decide for as long as the event loop may be held; return whether there is more to do."""
        started, clock = self._stopwatch(), _clock()
        more, slice_seconds = True, self.settings.slice_seconds_max
        while len(batch.answers) < most:
            ticket = self._undecided.popleft() if self._undecided else self._queue.take()
            if ticket is None:
                if not self._refresh_requested:
                    self._queued.clear()
                more = False
                break
            if not self._decide_ticket(batch, ticket, time_us, clock):
                self._undecided.appendleft(ticket)
                more = False
                break
            if not len(batch.answers) & 15 and self._stopwatch() - started > slice_seconds:
                break
        self._observer.blocked(self._stopwatch() - started)
        return more and len(batch.answers) < most

    def _decide_ticket(self, batch: Batch, ticket: Ticket, time_us: int, clock: float) -> bool:
        """Decide one command, unless no caller waits for it any more; False: the batch is full."""
        if ticket.answer.done():
            return True
        if clock > ticket.deadline:
            late = system_denials.unavailable(self.unavailable or "it did not answer in time")
            self._resolve(ticket, late)
            return True
        verdict = self._decider.judge(self.state, ticket, batch, time_us)
        if verdict is None:
            return False
        batch.answers.append((ticket, verdict))
        return True

    async def _store_batch(self, batch: Batch) -> bool:
        """Make a batch's answers true and give them; False when it must be decided again."""
        if self._identity.is_unverified and batch.answers:
            return await self._start_over()
        if batch.record is None:
            # Without an append nothing else shows that the state is as new as the commands are,
            # and "nothing is left to do" is as wrong on an old state as a denial is.
            if batch.answers and not await self._is_current():
                return False
            self._answer_batch(batch, self.state.position)
            return True
        position = batch.record.position
        started = self._stopwatch()
        if not await self._appender.store(batch.payload, position):
            self._observer.conflicted()
            return await self._start_over()
        self._seal(batch, batch.record)
        seconds = self._stopwatch() - started
        self._observer.batch_stored(len(batch.answers), len(batch.payload), seconds)
        self._answer_batch(batch, position)
        self._notify(batch.record)
        return True

    def _seal(self, batch: Batch, record: records.Record) -> None:
        """Make the state that of a batch's record, which the log has stored."""
        self.state.seal(record.position, batch.hash, record.time)
        self.space.grow(record.position, len(batch.payload))
        self._outage.end()

    async def _start_over(self) -> bool:
        """Take back what was decided and catch up: it must be decided again. Returns False."""
        self.state.undo()
        await self._is_current()
        return False

    async def _is_current(self) -> bool:
        """Return whether the state is at the log's end; if not, bring it there. Raises Lost."""
        self.space.note(await self._log.extent())
        last = self.space.extent.last
        await self._identity.check(self.state, last)
        is_current = last == self.state.position
        if not is_current:
            await replay.catch_up(self._log, self.state, last, on_record=self._notify)
            self._outage.end()
        self._outage.reached()
        if self.space.is_full and not self._outage.is_full:
            self._refuse(self.space.fullness(), is_full=True)
        return is_current

    def _mark_unreachable(self, error: LogError) -> None:
        """Remember that the log could not be reached: it may be another one when it is back."""
        self._outage.begin(str(error))
        self._identity.is_unverified = True

    def _is_unwritable(self, error: Full | Unwritable, batch: Batch) -> bool:
        """Refuse everything from now on; False when smaller records may still be stored."""
        if isinstance(error, Full) and self.space.shrink(len(batch.payload)):
            if not self.space.is_full:
                return False
            self._refuse(self.space.fullness(), is_full=True)
        else:
            self._refuse(str(error))
        return True

    def _refuse(self, reason: str, *, is_full: bool = False) -> None:
        """Answer all that waits, and all that comes, that the log stores nothing."""
        self._outage.refuse(reason, is_full=is_full)
        self._identity.is_unverified = True
        self.state.undo()
        self._answer_all(self._outage.denial())

    async def _probe(self) -> None:
        """Try whether the log stores something again: an empty record.

        It has no items, so it promises nothing. A log without room is not tried: its extent tells.
        """
        if self.space.is_full:
            return
        batch = Batch(self._nonces(), self.name)
        record = batch.seal_always(self.state, max(self.state.time, self._now()))
        try:
            if not await self._appender.send(batch.payload, record.position):
                await self._is_current()
                return
        except Lost:
            raise
        except LogError as error:
            known = "" if isinstance(error, Ambiguous) else str(error)
            self._outage.postpone(known)
            return
        self._seal(batch, record)
        self._notify(record)

    async def _refresh(self) -> None:
        """Look at the log while nobody asks anything."""
        try:
            await self._is_current()
        except Lost:
            raise
        except LogError as error:
            self._mark_unreachable(error)
            return
        if self._outage.is_probe_due():
            await self._probe()

    def _notify(self, record: records.Record) -> None:
        self._shares.note(record.items, _clock())
        for callback in self._callbacks:
            callback(record)

    def _answer_batch(self, batch: Batch, position: int) -> None:
        prefix = batch.nonce[:8]
        for index, (ticket, verdict) in enumerate(batch.answers):
            decision = f"{prefix}-{index}"
            if verdict is True or verdict is False:
                self._resolve(ticket, Accepted(position, decision, verdict))
                continue
            denial = msgspec.structs.replace(verdict, decision=decision)
            if not ticket.dry_run:
                self._denial_log.keep(ticket.command, denial, position, self._now())
            self._resolve(ticket, denial)

    def _resolve(self, ticket: Ticket, answer: Answer) -> None:
        if not ticket.answer.done():
            self._observer.decided(answer)
            ticket.answer.set_result(answer)

    def _answered(self, answer: Answer) -> Answer:
        self._observer.decided(answer)
        return answer

    def _answer_all(self, denial: Denial) -> None:
        for ticket in (*self._batch.tickets(), *self._undecided):
            self._resolve(ticket, denial)
        self._batch, self._undecided = Batch("", self.name), deque()
        while (queued := self._queue.take()) is not None:
            self._resolve(queued, denial)


def _clock() -> float:
    return asyncio.get_running_loop().time()
