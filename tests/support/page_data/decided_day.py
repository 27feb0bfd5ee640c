"""Decided day: commands at given times, decided and sealed as a writer would, and their denials.

Nothing is random and nothing reads a clock, so one script leads to the same records each time.
"""

import heapq
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model.commands import AnyCommand, Reserve
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.writer import denial_log

SECOND: Final = 1_000_000
HOUR: Final = 3_600 * SECOND

Work = Callable[[], object]


class DecidedDay:
    """A state that work at given times advances; `payloads` and `denials` as the log has them."""

    def __init__(self, start: int) -> None:
        """Begin at `start`, in µs of Unix time."""
        self.start = start
        self.state = State()
        self.payloads: list[bytes] = []
        self.denials: list[bytes] = []
        self._now = start
        self._planned: list[tuple[int, int, Work]] = []
        self._numbers = 0

    def number(self) -> int:
        """Return the next number: a resourceVersion, or a part of a uid."""
        self._numbers += 1
        return self._numbers

    def at(self, hours: float, work: Callable[..., object], *arguments: object) -> None:
        """Plan a call for so many hours after the start."""
        self._plan(self.start + round(hours * HOUR), partial(work, *arguments))

    def later(self, seconds: float, work: Callable[..., object], *arguments: object) -> None:
        """Plan a call for so many seconds after the present one."""
        self._plan(self._now + round(seconds * SECOND), partial(work, *arguments))

    def run(self) -> None:
        """Do all planned work in the order of time, also what it plans."""
        while self._planned:
            self._now, _, work = heapq.heappop(self._planned)
            work()

    def do(self, *asked: AnyCommand) -> Denial | None:
        """Decide commands in one record and return the last denial; reservations' are kept."""
        state, items, last = self.state, list[records.Item](), None
        before, state.time = state.time, self._now
        for command in asked:
            decision = decide(state, command)
            if isinstance(decision, Denial):
                last = decision
                self._deny(command, decision)
            else:
                items += [
                    records.Item(event, evolve(state, event, self._now)) for event in decision
                ]
        if items:
            self._seal(items, len(asked))
        else:
            state.time = before
        return last

    def _plan(self, time: int, work: Work) -> None:
        heapq.heappush(self._planned, (time, self.number(), work))

    def _seal(self, items: list[records.Item], commands: int) -> None:
        state = self.state
        made = records.Record(
            state.position + 1, self._now, "replica-a", "n", state.hash, commands, items
        )
        payload, digest = records.encode(made)
        state.seal(made.position, digest, made.time)
        self.payloads.append(payload)

    def _deny(self, command: AnyCommand, denial: Denial) -> None:
        if not isinstance(command, Reserve):
            return
        decision = f"{len(self.denials) + 0x5EED0000:08x}-0"
        logged = denial_log.LoggedDenial(
            self._now,
            self.state.position,
            command.namespace,
            command.key,
            command.uid,
            command.actor,
            command.demand,
            msgspec.structs.replace(denial, decision=decision),
        )
        self.denials.append(denial_log.encode(logged))
