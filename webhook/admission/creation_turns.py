"""Creation turns: a creation beyond its owner's bound waits briefly for earlier ones to settle.

A controller or a user may create hundreds of pods at once. The watch shows each some milliseconds
after it is stored, so the bound on unsettled creations would refuse most of them. While creations
of an owner settle, further ones wait here, in order. The ledger decides each of them in any case:
waiting only delays the question. If no creation of an owner settles, because another webhook denies
them, all that wait ask the ledger, and later ones do not wait for some seconds.
"""

import asyncio
from collections import deque
from typing import Final

from ledger.core.model.commands import CREATE, Reserve
from ledger.core.model.denials import Denial
from ledger.log.ledger_port import Accepted, Ledger
from webhook.context.owner_chain import StateSource

LOOK_SECONDS: Final = 0.02
"""Period in which waiting creations look at the state."""

STALLED_SECONDS: Final = 0.5
"""Wait without any progress of the owner. The watch shows a stored pod within milliseconds."""

WAIT_SECONDS: Final = 2.0
"""Longest wait. It is at most half of the time that a review has."""

WAITING_OF_OWNER_MAX: Final = 512
"""Waiting creations of one owner: a burst of the ReplicaSet controller has 500."""

WAITING_MAX: Final = 2048
"""Waiting creations of all owners."""

PAUSE_SECONDS: Final = 5.0
"""Period after a stall in which no creation of that owner waits."""

PAUSED_MAX: Final = 1024
"""Maximum number of remembered stalls; the oldest are forgotten."""

Owner = tuple[str, str]
"""A qualified namespace and the owner of creations in it."""


class _Line:
    """The creations of one owner: how many ask the ledger now, and which wait, with their ends."""

    __slots__ = ("asking", "progress", "waiting")

    def __init__(self) -> None:
        self.asking = 0
        self.progress = 0.0
        self.waiting: deque[tuple[asyncio.Future[None], float]] = deque()


class CreationTurns:
    """Submits reservations to a ledger, those beyond an owner's bound after a wait."""

    def __init__(self, ledger: Ledger, view: StateSource, *, owner_holds_max: int) -> None:
        """`view` is the state of this replica; only the writer's is exact."""
        self._ledger = ledger
        self._view = view
        self._bound = owner_holds_max
        self._lines: dict[Owner, _Line] = {}
        self._paused: dict[Owner, float] = {}
        self._waiting = 0

    async def submit(self, reserve: Reserve, until: float) -> Accepted | Denial:
        """Ask the ledger, in turn if it is a creation of an owner with a bound.

        A wait leaves at least half of the time until loop time `until`.
        """
        if not self._bound or reserve.base != CREATE or reserve.forced:
            return await self._ledger.submit(reserve)
        owner = reserve.namespace, reserve.owner
        line = self._lines.get(owner)
        if line is None:
            line = self._lines[owner] = _Line()
        if line.waiting or self._room(owner, line) <= 0:
            await self._turn(owner, line, until)
        else:
            line.asking += 1
        try:
            return await self._ledger.submit(reserve)
        finally:
            line.asking -= 1
            self._forget_if_empty(owner, line)

    def _room(self, owner: Owner, line: _Line) -> int:
        """Return how many creations may be asked for before the bound is reached."""
        space = self._view.state.namespaces.get(owner[0])
        unsettled = 0 if space is None else space.owners.get(owner[1], 0)
        return self._bound - unsettled - line.asking

    async def _turn(self, owner: Owner, line: _Line, until: float) -> None:
        """Wait for the turn of this creation, or until waiting ends without one; then it asks."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        may_wait = len(line.waiting) < WAITING_OF_OWNER_MAX and self._waiting < WAITING_MAX
        if not may_wait or self._paused.get(owner, 0.0) > now:
            line.asking += 1
            return
        if not line.waiting:
            line.progress = now
        if not self._waiting:
            loop.call_later(LOOK_SECONDS, self._look)
        turn: asyncio.Future[None] = loop.create_future()
        line.waiting.append((turn, now + min(WAIT_SECONDS, (until - now) / 2)))
        self._waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn was given, and counts as asking
                line.asking -= 1
                self._forget_if_empty(owner, line)
            raise

    def _look(self) -> None:
        """Give the turns that are due; look again while any creation waits."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for owner, line in list(self._lines.items()):
            if line.waiting:
                self._advance(owner, line, now)
                self._forget_if_empty(owner, line)
        if self._waiting:
            loop.call_later(LOOK_SECONDS, self._look)

    def _advance(self, owner: Owner, line: _Line, now: float) -> None:
        """Give as many turns as there is room, and those whose wait is too long."""
        room = self._room(owner, line)
        if room > 0:
            line.progress = now
        is_stalled = now - line.progress >= STALLED_SECONDS
        if is_stalled:
            self._pause(owner, now)
        while line.waiting and (room > 0 or is_stalled or line.waiting[0][1] <= now):
            turn, _ = line.waiting.popleft()
            self._waiting -= 1
            if not turn.done():  # otherwise its request was cancelled
                turn.set_result(None)
                line.asking += 1
                room -= 1

    def _pause(self, owner: Owner, now: float) -> None:
        self._paused.pop(owner, None)
        if len(self._paused) >= PAUSED_MAX:
            del self._paused[next(iter(self._paused))]
        self._paused[owner] = now + PAUSE_SECONDS

    def _forget_if_empty(self, owner: Owner, line: _Line) -> None:
        if not line.asking and not line.waiting and self._lines.get(owner) is line:
            del self._lines[owner]
