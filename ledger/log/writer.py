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
from typing import Final, NoReturn

import msgspec
import structlog

from ledger.core import decisions, evolution
from ledger.core.commands import AnyCommand
from ledger.core.denials import Decision, Denial
from ledger.core.events import AnyEvent
from ledger.core.state import State
from ledger.log import answers, opening, records
from ledger.log.group import Group, Ticket
from ledger.log.observer import Answer, Observer
from ledger.log.outage import Outage
from ledger.log.port import Ambiguous, Conflict, Extent, Log, LogError, Lost, Unreachable
from ledger.log.queueing import FairQueue
from ledger.log.refusals import Refusals
from ledger.log.submission import Accepted
from ledger.log.witness import Head

BALANCE_MAX: Final = 2**62
"""Largest balance that a record may hold; readers and projections keep 64 bits with a sign."""

_logger: Final = structlog.get_logger("ledger.log")


class WriterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the writer."""

    group_commands_max: int = 1_000
    """Most commands in one record."""
    slice_seconds_max: float = 0.003
    """Longest time to decide at a stretch: the event loop has others to serve in between."""
    record_bytes_max: int = 1_000_000
    """Largest record: a group that comes out larger is taken back and halved."""
    queue_commands_max: int = 20_000
    """Most commands that wait, of all namespaces together."""
    queue_namespace_max: int = 5_000
    """Most commands that wait, of one namespace."""
    command_seconds_max: float = 7.0
    """How long a command may wait before it is answered that the ledger cannot be reached."""
    retry_seconds: float = 0.05
    """First pause after a failed append; doubles up to `retry_seconds_max`."""
    retry_seconds_max: float = 1.0
    refresh_seconds: float = 0.25
    """How often an idle writer looks whether somebody else wrote."""
    outage_seconds: float = 10.0
    """A log out of reach for so long is said to be so at once, without waiting for it again.

    Shorter outages are waited out: a replicated log that loses its leader is back after 5 to 8 s.
    """
    behind_seconds_max: float = 0.0
    """How long a log may tell an end before the one that was seen, until it counts as lost.

    A replicated log's leader that was cut off does so for about ten seconds.
    """
    refusals_max: int = 1_000
    """Most denials that wait to be kept; more are dropped and counted."""


class Writer:
    """One replica's writer of a shard. `state` is what it decides on: read it, never change it."""

    def __init__(
        self,
        log: Log,
        *,
        name: str,
        now: Callable[[], int],
        nonces: Callable[[], str],
        settings: WriterSettings | None = None,
        observer: Observer | None = None,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`now` tells µs of Unix time; `nonces` makes a fresh one per record."""
        self.settings = settings or WriterSettings()
        self.state = State()
        self.stopped: str | None = None
        self._outage = Outage("the log has not been opened yet")
        self.name, self._log = name, log
        self._now, self._nonces, self._stopwatch = now, nonces, stopwatch
        self._observer = observer or Observer()
        self._queue: FairQueue[Ticket] = FairQueue(
            total_max=self.settings.queue_commands_max, lane_max=self.settings.queue_namespace_max
        )
        self._queued = asyncio.Event()
        self._hand: deque[Ticket] = deque()
        self._group = Group("")
        self._callbacks: list[Callable[[records.Record], None]] = []
        self._refusals = Refusals(log, self.settings.refusals_max, self._observer.refusal_dropped)
        self._estranged = False
        self._is_to_look = False
        self._behind_since: float | None = None
        self.extent = Extent(1, 0, 0, 0)

    @property
    def head(self) -> Head:
        """The position and hash this writer has applied."""
        return Head(self.state.position, self.state.hash.hex())

    @property
    def unavailable(self) -> str | None:
        """Why the log is out of reach, None while it is not."""
        return self._outage.reason

    @property
    def waiting(self) -> int:
        """How many commands wait to be decided."""
        return len(self._queue) + len(self._hand)

    def subscribe(self, callback: Callable[[records.Record], None]) -> None:
        """Call back after every record that was applied, own or not, in order."""
        self._callbacks.append(callback)

    async def open(
        self,
        witnesses: Sequence[Head] = (),
        on_progress: opening.Progress | None = None,
    ) -> None:
        """Bring the state to the log's end. Raises Lost, records.NewerSchema, Unreachable."""
        self.state = await opening.open_state(
            self._log, witnesses=witnesses, on_progress=on_progress
        )
        self.state.journal = []
        self._outage.end()

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Answer:
        """Queue a command and wait for its durable answer; see `submission.Ledger`."""
        if self.stopped is not None:
            return self._answered(answers.stopped(self.stopped))
        if self._outage.reason is not None and self._outage.lasts(self.settings.outage_seconds):
            # The writer keeps looking by itself; whoever asks need not wait for it.
            return self._answered(answers.unavailable(self._outage.reason))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.command_seconds_max
        ticket = Ticket(command, dry_run, loop.create_future(), deadline)
        if not self._queue.put(getattr(command, "namespace", ""), ticket):
            return self._answered(
                answers.overloaded(f"{len(self._queue)} requests are waiting already")
            )
        self._queued.set()
        return await ticket.answer

    def look(self) -> None:
        """Look at the log soon: somebody else may have written."""
        self._is_to_look = True
        self._queued.set()

    def stop(self, reason: str) -> None:
        """Decide nothing more, for good: the log was found not to be intact."""
        self.stopped = reason
        self._queued.set()

    async def run(self) -> None:
        """Serve until cancelled, stopped, or the log turns out to be lost or too new."""
        keeping = asyncio.create_task(self._refusals.run())
        try:
            while self.stopped is None:
                await self._serve_once()
            self._answer_all(answers.stopped(self.stopped))
        except (Lost, records.NewerSchema) as error:
            self.stopped = str(error)
            self._answer_all(answers.stopped(self.stopped))
        finally:
            keeping.cancel()
            self.state.undo()
            self._answer_all(answers.unavailable("this replica is shutting down"))

    async def _serve_once(self) -> None:
        try:
            async with asyncio.timeout(self.settings.refresh_seconds):
                await self._queued.wait()
        except TimeoutError:
            await self._refresh()
            return
        if self._is_to_look:
            self._is_to_look = False
            await self._refresh()
        pause, most = self.settings.retry_seconds, self.settings.group_commands_max
        while self.stopped is None:
            group = await self._decide(most)
            if len(group.payload) > self.settings.record_bytes_max:
                most = self._split(group)
                continue
            try:
                if await self._settle(group):
                    self._group = Group("")
                    if not self._hand:
                        return
                    continue
            except Lost:
                raise
            except LogError as error:
                self._lose_sight(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, self.settings.retry_seconds_max)
            self.state.undo()
            self._hand.extendleft(reversed(group.tickets()))

    async def _decide(self, most: int) -> Group:
        """Decide what is in hand, then what is queued, until the group is full."""
        group = self._group = Group(self._nonces())
        time_us = max(self.state.time, self._now())
        more = self._decide_slice(group, most, time_us)
        while more:
            await asyncio.sleep(0)
            more = self._decide_slice(group, most, time_us)
        group.seal(self.state, self.name, time_us)
        return group

    def _decide_slice(self, group: Group, most: int, time_us: int) -> bool:
        """Decide for as long as the event loop may be held; return whether there is more to do."""
        started, clock = self._stopwatch(), asyncio.get_running_loop().time()
        more = True
        while len(group.answers) < most:
            ticket = self._hand.popleft() if self._hand else self._queue.take()
            if ticket is None:
                if not self._is_to_look:
                    self._queued.clear()
                more = False
                break
            self._judge(group, ticket, time_us, clock)
            if not len(group.answers) & 15 and self._late(started):
                break
        self._observer.blocked(self._stopwatch() - started)
        return more and len(group.answers) < most

    def _judge(self, group: Group, ticket: Ticket, time_us: int, clock: float) -> None:
        """Decide one command, unless nobody waits for it any more."""
        if ticket.answer.done():
            return
        if clock > ticket.deadline:
            late = answers.unavailable(self.unavailable or "it did not answer in time")
            self._resolve(ticket, late)
            return
        decision = self._decision(ticket.command)
        if isinstance(decision, Denial):
            group.answers.append((ticket, decision))
        elif ticket.dry_run or not decision:
            group.answers.append((ticket, False))
        else:
            group.answers.append((ticket, self._evolve(decision, time_us, group.items)))

    def _late(self, started: float) -> bool:
        return self._stopwatch() - started > self.settings.slice_seconds_max

    def _evolve(
        self, found: list[AnyEvent], time_us: int, items: list[records.Item]
    ) -> Denial | bool:
        """Apply a command's events ahead of their acknowledgement."""
        journal = self.state.journal
        assert journal is not None, "the writer decides ahead only on a journaled state"
        mark, kept = len(journal), len(items)
        try:
            items += [
                records.Item(event, evolution.evolve(self.state, event, time_us)) for event in found
            ]
            if any(max(item.postings, default=0) > BALANCE_MAX for item in items[kept:]):
                raise OverflowError("a balance would need more than 64 bits")
        except Exception as error:  # noqa: BLE001 - a defect may cost one command, not the service
            self.state.undo(mark)
            del items[kept:]
            return self._defect(error)
        return True

    def _decision(self, command: AnyCommand) -> Decision:
        try:
            return decisions.decide(self.state, command)
        except Exception as error:  # noqa: BLE001 - as above
            return self._defect(error)

    def _defect(self, error: Exception) -> Denial:
        """Refuse the one command that meets a defect of ours, loudly."""
        problem = f"{type(error).__name__}: {error}"
        self._observer.contradicted(problem)
        _logger.error("command_met_a_defect", problem=problem, exc_info=error)
        return answers.defective(problem)

    def _split(self, group: Group) -> int:
        """Take back a record that is too large for the log; return how many to decide next."""
        self.state.undo()
        tickets = group.tickets()
        if len(tickets) == 1:
            size, most = len(group.payload), self.settings.record_bytes_max
            self._resolve(tickets[0], answers.too_large(size, most))
            return self.settings.group_commands_max
        self._hand.extendleft(reversed(tickets))
        return len(tickets) // 2

    async def _settle(self, group: Group) -> bool:
        """Make a group's answers true and give them; False when it must be decided again."""
        if self._estranged and group.answers:
            return await self._start_over()
        if group.record is None:
            # Without an append nothing else shows that the state is as new as the commands are,
            # and "nothing is left to do" is as wrong on an old state as a denial is.
            if group.answers and not await self._is_current():
                return False
            self._give(group, self.state.position)
            return True
        position = group.record.position
        started = self._stopwatch()
        if not await self._store(group.payload, position):
            self._observer.conflicted()
            return await self._start_over()
        self.state.seal(position, group.hash, group.record.time)
        self._outage.end()
        seconds = self._stopwatch() - started
        self._observer.group_stored(len(group.answers), len(group.payload), seconds)
        self._give(group, position)
        self._tell(group.record)
        return True

    async def _start_over(self) -> bool:
        """Take back what was decided and catch up: it must be decided again. Returns False."""
        self.state.undo()
        await self._is_current()
        return False

    async def _store(self, payload: bytes, position: int) -> bool:
        """Store a record at a position; False when another one stands there."""
        try:
            stored_at = await self._log.append(payload, position - 1)
        except Conflict:
            return False
        except Ambiguous:
            self._observer.ambiguous()
            return await self._find_out(payload, position)
        if stored_at != position:
            raise Lost(f"the log stored position {stored_at} where {position} was expected")
        return True

    async def _find_out(self, payload: bytes, position: int) -> bool:
        """Look what stands at the position after an unclear append, and send again if nothing does.

        Gives up as Unreachable after a while: should the record appear later all the same, it is
        read and applied like anybody else's.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self.settings.command_seconds_max
        pause = self.settings.retry_seconds
        problem: LogError = Unreachable("an append had an unclear outcome")
        while loop.time() < until:
            try:
                stored = await self._log.get(position)
                if stored is not None:
                    return stored == payload
                await self._recognise()
                await self._log.append(payload, position - 1)
                return True
            except (Conflict, Ambiguous, Unreachable) as error:
                problem = error
            self._lose_sight(problem)
            await asyncio.sleep(pause)
            pause = min(2 * pause, self.settings.retry_seconds_max)
        raise Unreachable(f"it stays unclear whether a record was stored: {problem}")

    async def _is_current(self) -> bool:
        """Return whether the state is at the log's end; if not, bring it there. Raises Lost."""
        self.extent = await self._log.extent()
        last = self.extent.last
        if last < self.state.position:
            self._find_behind(last)
        self._behind_since = None
        if self._estranged:
            await self._recognise()
        is_current = last == self.state.position
        if not is_current:
            await opening.catch_up(self._log, self.state, last, on_record=self._tell)
        self._outage.end()
        return is_current

    def _find_behind(self, last: int) -> NoReturn:
        """The log tells of an end before the one that was seen: lost, unless that may pass."""
        now = asyncio.get_running_loop().time()
        since = self._behind_since = now if self._behind_since is None else self._behind_since
        found = (
            f"the log ends at position {last}, but position {self.state.position} was acknowledged"
        )
        if now - since < self.settings.behind_seconds_max:
            raise Unreachable(f"{found}: a server may be behind")
        raise Lost(f"{found}: records are missing. Restore the log; see docs/operating.md")

    def _lose_sight(self, error: LogError) -> None:
        """Remember that the log could not be reached: it may be another one when it is back."""
        self._outage.begin(str(error))
        self._estranged = True

    async def _recognise(self) -> None:
        """Check that the log still holds the record this writer saw last. Raises Lost, Unreachable.

        A log that lost its end may have grown to its old length again, by others who never saw
        what was lost. Its extent alone would not tell.
        """
        seen = Head(self.state.position, self.state.hash.hex(), "this replica")
        if not await opening.is_there(self._log, seen):
            raise Unreachable(f"position {seen.position} cannot be read: a server may be behind")
        self._estranged = False

    async def _refresh(self) -> None:
        """Look at the log while nobody asks anything."""
        try:
            await self._is_current()
        except Lost:
            raise
        except LogError as error:
            self._lose_sight(error)

    def _tell(self, record: records.Record) -> None:
        for callback in self._callbacks:
            callback(record)

    def _give(self, group: Group, position: int) -> None:
        prefix = group.nonce[:8]
        for index, (ticket, verdict) in enumerate(group.answers):
            decision = f"{prefix}-{index}"
            if verdict is True or verdict is False:
                self._resolve(ticket, Accepted(position, decision, verdict))
                continue
            denial = msgspec.structs.replace(verdict, decision=decision)
            if not ticket.dry_run:
                self._refusals.keep(ticket.command, denial, position, self._now())
            self._resolve(ticket, denial)

    def _resolve(self, ticket: Ticket, answer: Answer) -> None:
        if not ticket.answer.done():
            self._observer.decided(answer)
            ticket.answer.set_result(answer)

    def _answered(self, answer: Answer) -> Answer:
        self._observer.decided(answer)
        return answer

    def _answer_all(self, denial: Denial) -> None:
        for ticket in (*self._group.tickets(), *self._hand):
            self._resolve(ticket, denial)
        while (queued := self._queue.take()) is not None:
            self._resolve(queued, denial)
