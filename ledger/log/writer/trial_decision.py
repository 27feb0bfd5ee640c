"""Judging one command at a time on a running state: the decision, and whether it may be recorded.

What a command leads to is applied ahead of its record, so that the next command is decided on top
of it. A command whose events do not fit into the log, or for which there is no share of it, is
refused alone, and what was applied for it is taken back.
"""

from collections.abc import Callable
from typing import Final

import structlog

from ledger.core.decide import decider
from ledger.core.evolve import evolver
from ledger.core.model.commands import AnyCommand, Reserve
from ledger.core.model.denials import Decision, Denial
from ledger.core.model.events import AnyEvent
from ledger.core.model.state import State
from ledger.log import records, system_denials
from ledger.log.writer.batch import Batch, Ticket
from ledger.log.writer.log_space import LogSpace, asks_for_more
from ledger.log.writer.namespace_shares import NamespaceShares
from ledger.log.writer.observer import WriterObserver

BALANCE_MAX: Final = 2**62
"""Largest balance that a record may hold; readers and projections keep 64 bits with a sign."""

_log: Final = structlog.get_logger("ledger.log")


class TrialDecider:
    """Decides commands of one writer; `record_bytes_max` is the largest record that it makes."""

    def __init__(
        self,
        shares: NamespaceShares,
        space: LogSpace,
        *,
        observer: WriterObserver,
        clock: Callable[[], float],
        record_bytes_max: int,
    ) -> None:
        """`clock` returns the time, in seconds, by which shares grow."""
        self.record_bytes_max = record_bytes_max
        self._shares, self._space, self._observer = shares, space, observer
        self._clock = clock

    def judge(
        self, state: State, ticket: Ticket, batch: Batch, time_us: int
    ) -> Denial | bool | None:
        """Return a denial, or whether the command changed anything; None: it has to wait.

        It waits for the next record when the batch would become too large with it. Events that
        are accepted are applied to `state` and are added to `batch`.
        """
        command = ticket.command
        decision = self._decision(state, command)
        if isinstance(decision, Denial):
            return decision
        if not decision:
            return False
        refusal = self._no_share(command) or self._in_reserve(command, batch.size)
        if refusal is not None:
            return refusal
        if ticket.dry_run:
            return False
        return self._evolve(state, decision, batch, time_us)

    def _no_share(self, command: AnyCommand) -> Denial | None:
        """Refuse what is new about a namespace that has appended more than its share."""
        if not isinstance(command, Reserve):
            return None
        seconds = self._shares.wait(command.namespace, self._clock())
        return system_denials.over_share(command.namespace, seconds) if seconds > 0 else None

    def _in_reserve(self, command: AnyCommand, size: int) -> Denial | None:
        """Refuse what is new while only the log's reserve is left."""
        if asks_for_more(command) and self._space.is_reserve(size):
            return system_denials.in_reserve(self._space.shown())
        return None

    def _evolve(
        self, state: State, found: list[AnyEvent], batch: Batch, time_us: int
    ) -> Denial | bool | None:
        """Apply a command's events ahead of their acknowledgement."""
        journal = state.journal
        assert journal is not None, "the writer decides ahead only on a journaled state"
        mark = len(journal)
        try:
            items = [records.Item(event, evolver.evolve(state, event, time_us)) for event in found]
            if any(max(item.postings, default=0) > BALANCE_MAX for item in items):
                raise OverflowError("a balance would need more than 64 bits")
            size = sum(len(records.encode_item(item)) for item in items)
        except Exception as error:  # noqa: BLE001 - a defect may cost one command, not the service
            state.undo(mark)
            return self._defect(error)
        verdict = self._fits(size, batch)
        if verdict is True:
            batch.items += items
            batch.size += size
        else:
            state.undo(mark)
        return verdict

    def _fits(self, size: int, batch: Batch) -> Denial | bool | None:
        """Return True for events of so many bytes that fit into a batch, None if they wait."""
        largest, room = self.record_bytes_max, self._space.room
        alone = batch.head + size
        if alone > largest:
            return system_denials.too_large(alone, largest)
        if room is not None and alone > room:
            return system_denials.no_room(alone, self._space.shown())
        largest = largest if room is None else min(largest, room)
        return True if batch.size + size <= largest else None

    def _decision(self, state: State, command: AnyCommand) -> Decision:
        try:
            return decider.decide(state, command)
        except Exception as error:  # noqa: BLE001 - as above
            return self._defect(error)

    def _defect(self, error: Exception) -> Denial:
        """Refuse the one command that meets a defect of ours, loudly."""
        problem = f"{type(error).__name__}: {error}"
        self._observer.contradicted(problem)
        _log.error("command_met_a_defect", problem=problem, exc_info=error)
        return system_denials.defective(problem)
