"""Proposing: asking the ledger for cards of a node, and for others when it refuses these.

What is proposed was chosen on arrays that are a moment old, or are missing what another extender
does. The ledger decides; when it finds a card taken, another card of the same node may do, so the
choice is made again on what has become known since.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from extender.asking import Asked
from extender.news import News
from extender.selecting import PLACING_SECONDS, Selecting
from ledger.core.cards import Parts, Placement
from ledger.core.commands import Place, Unplace
from ledger.core.denials import Denial, Reason, sentence
from ledger.core.events import Cause
from ledger.kube.rules import DemandRules
from ledger.kube.stands import stands_of
from ledger.log.submission import Accepted, Ledger
from ledger.log.view import View

ACTOR: Final = "extender"

CHOICES_MAX: Final = 8
"""How often cards of one node are chosen within one bind."""

CATCH_UP_SECONDS: Final = 0.25
"""How long to wait for what the ledger knew when it refused a card."""

UNPLACE_TRIES_MAX: Final = 3
"""How often cards are given back; what is left then is settled by reading the pod again."""

_WAIT_FOR: Final = frozenset(
    {Reason.NODE_BUSY, Reason.POD_UNKNOWN, Reason.OVERLOADED, Reason.LEDGER_UNAVAILABLE}
)
"""What passes by itself: another pod gets its cards, or the pod's creation is told."""

_CHOOSE_AGAIN: Final = frozenset(
    {
        Reason.CARD_NOT_FOUND,
        Reason.CARD_NOT_HEALTHY,
        Reason.CARD_CORDONED,
        Reason.CARD_TIME_SLICING_EXHAUSTED,
        Reason.EXCLUSIVE_CONFLICT,
        Reason.RESOURCE_QUOTA_NOT_FIT,
        Reason.CARD_INSUFFICIENT_MEMORY,
        Reason.CARD_INSUFFICIENT_CORE,
        Reason.CARD_COMPUTE_UNITS_EXHAUSTED,
        Reason.CARD_MIG_INFEASIBLE,
        Reason.CARD_CLAIMED,
    }
)
"""What is about these cards; others of the node may do."""


class Proposed(msgspec.Struct, frozen=True):
    """The cards that a pod has now, or the `problem` why it has none.

    `ours` says that this call placed it; otherwise an earlier one did, whose bind may be under way.
    """

    parts: Parts = ()
    ours: bool = False
    problem: str = ""


class Proposing:
    """Places pods, through a ledger whose state `view` shows."""

    def __init__(
        self,
        ledger: Ledger,
        view: View,
        selecting: Selecting,
        news: News,
        rules: Callable[[], DemandRules],
        clock: Callable[[], float],
    ) -> None:
        """Propose what `selecting` chooses; `clock` is the time of the loop in seconds."""
        self._ledger, self._view, self._rules = ledger, view, rules
        self._selecting, self._news, self._clock = selecting, news, clock

    def standing(self, asked: Asked) -> Placement | None:
        """Return where a pod has cards already, as far as this replica knows."""
        space = self._view.state.namespaces.get(asked.namespace)
        placed = space.placed.get(asked.key) if space is not None else None
        if placed is None or placed.uid != asked.uid or not placed.node:
            return None
        return placed

    async def place(self, asked: Asked, node: str, until: float) -> Proposed:
        """Have a pod placed on a node, by loop time `until`."""
        refused, tried = "", None
        for _ in range(CHOICES_MAX):
            parts = self._parts(asked, node)
            if isinstance(parts, str):
                return Proposed(problem=refused or parts)
            # Nothing that would change the answer has become known.
            if tried == (parts, self._selecting.inventory.position):
                break
            tried = parts, self._selecting.inventory.position
            answer = await self._decided(self._command(asked, node, parts), until)
            if not isinstance(answer, Denial):
                return Proposed(parts, answer.changed)
            refused = sentence(answer)
            if answer.reason not in _CHOOSE_AGAIN or self._clock() >= until:
                break
            await self._news.wait(CATCH_UP_SECONDS)
        self._selecting.forget(asked)
        return Proposed(problem=refused)

    async def unplace(self, asked: Asked, node: str) -> bool:
        """Give a pod's cards back; False when the ledger did not take it, and settlement will."""
        command = Unplace(
            asked.namespace, asked.key, asked.uid, asked.of(node), Cause.UNBOUND, ACTOR
        )
        self._selecting.forget(asked)
        for _ in range(UNPLACE_TRIES_MAX):
            if not isinstance(await self._ledger.submit(command), Denial):
                return True
            await self._news.wait(CATCH_UP_SECONDS)
        return False

    def _parts(self, asked: Asked, node: str) -> Parts | str:
        """Return the cards to propose: those that it has, or the best ones."""
        placed = self.standing(asked)
        if placed is not None:
            where = f"{Reason.POD_PLACED}: it has cards of {placed.node}"
            return placed.parts if placed.node == asked.of(node) else where
        parts = self._selecting.on(asked, node)
        if not isinstance(parts, str):
            self._selecting.guess(asked, node, parts, PLACING_SECONDS)
        return parts

    def _command(self, asked: Asked, node: str, parts: Parts) -> Place:
        name = asked.of(node)
        known = self._view.state.nodes.get(name)
        cards = known.cards if known is not None else ()
        return Place(
            asked.namespace,
            asked.key,
            asked.uid,
            name,
            parts,
            stands_of(parts, asked.wish, self._rules(), cards),
            self._selecting.wants_unused(asked),
            actor=ACTOR,
        )

    async def _decided(self, command: Place, until: float) -> Accepted | Denial:
        """Have a command decided; while something that passes is in the way, wait and try again."""
        while True:
            answer = await self._ledger.submit(command)
            if not isinstance(answer, Denial) or answer.reason not in _WAIT_FOR:
                return answer
            left = until - self._clock()
            if left <= 0:
                return answer
            await self._news.wait(left)
            await self._idle(command.node, until)

    async def _idle(self, node: str, until: float) -> None:
        """Wait until a node, as far as is known here, is handing cards out to nobody."""
        short = node.partition("/")[2]
        while self._selecting.is_busy(short) and self._clock() < until:
            await self._news.wait(until - self._clock())
