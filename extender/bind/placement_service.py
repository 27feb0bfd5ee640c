"""Proposing: asking the ledger for cards of a node, and for others when it refuses these.

What is proposed was chosen on arrays that are a moment old, or are missing what another extender
does. The ledger decides; when it finds a card taken, another card of the same node may do, so the
choice is made again on what has become known since.

A pod may be asked to be bound twice, by two extenders or again after an unclear answer. Its Binding
is sent by the extender that placed it and by no other one: otherwise one could give the cards back
while the other's Binding is on its way. The others wait for the outcome. After a crash there is
none, so they wait for a few seconds, fence the Bindings of that placement
(`extender.bind.binding_fence`), give its cards back and begin anew.

That rests on one rule: the Bindings to the cards of a placement all name the resourceVersion that
the ledger has with it. A pod that has changed is placed anew before it is bound.
"""

import asyncio
import math
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from extender.fit.inventory_fit import ChosenCards, FitEngine
from extender.inventory.assumed_placements import PLACING_SECONDS, AssumedPlacements
from extender.scheduler_api.scheduling_request import PODS_MAX, BoundedCache, SchedulingRequest
from ledger.core.model.cards import Parts, Placement, Stage
from ledger.core.model.commands import Place, Unplace
from ledger.core.model.denials import Denial, Reason, sentence
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import local_name
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.placed_demand import placement_overrides
from ledger.log.ledger import Accepted, Ledger, StateView
from ledger.log.record_signal import RecordSignal

ACTOR: Final = "extender"

CHOICES_MAX: Final = 8
"""How often cards of one node are chosen within one bind."""

CATCH_UP_SECONDS: Final = 0.25
"""How long to wait for what the ledger knew when it refused a card."""

AGAIN_SECONDS: Final = 0.1
"""Pause between news and another try: in a busy ledger there are many records a second, and each of
those who wait would have something decided after every one."""

TAKE_UP_SECONDS: Final = 10.0
"""How old a placement may be that an earlier call has left, to be bound by this one.

Settlement undoes it once no Binding can be under way any more, counted from its beginning. The API
server may take 34 s over one, so none may be sent late.
"""

FENCE_SECONDS: Final = 3.0
"""How long another extender's Binding is waited for before it is fenced. Most take a tenth of a
second; that it is too short for one costs this one a second try and no cards."""

FENCE_DOUBLINGS_MAX: Final = 3
"""How often that pause doubles for a pod that was fenced here before, so that two extenders of a
slow API server do not refuse one another's Bindings for ever."""

APPLIED_SECONDS: Final = 2.0
"""How long to wait until this replica has applied that cards were given back. Until then the
placement seems to stand here, in the way of the next one."""

UNPLACE_TRIES_MAX: Final = 3
"""How often cards are given back; what is left then is settled by reading the pod again."""

_WAIT_FOR: Final = frozenset(
    {Reason.NODE_BUSY, Reason.POD_UNKNOWN, Reason.OVERLOADED, Reason.LEDGER_UNAVAILABLE}
)
"""What passes by itself: another pod gets its cards, or the pod's creation is told."""

_TRY_AGAIN: Final = frozenset(
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
        Reason.POD_PLACED,
    }
)
"""What is about these cards, where others of the node may do, or about another bind of the pod."""


class Origin(Enum):
    """Who has placed a pod, and so who may send its Binding."""

    NEW = "new"
    """This call: it sends the Binding, and gives the cards back where that is refused."""
    KEPT = "kept"
    """An earlier call that did not learn what became of its Binding: this one may send another."""
    OTHERS = "others"
    """Another call, which may be about to send its Binding: this call sends none."""
    BOUND = "bound"
    """It does not matter any more: the pod is bound."""


class PlacementResult(msgspec.Struct, frozen=True):
    """The cards that a pod has now, or the `problem` why it has none.

    `since` is a loop time in seconds at which the call that placed it had not done so yet.
    `standing` is the placement of another call, which is in the way of this one; without one, and
    without a `problem`, it is not known here yet.
    """

    parts: Parts = ()
    origin: Origin = Origin.OTHERS
    since: float = 0.0
    problem: str = ""
    standing: Placement | None = None


class _UnclearBinding(msgspec.Struct, frozen=True):
    """A placement, by its `version` and `time` in the ledger, and a loop time `since` when."""

    version: int
    time: int
    since: float

    def is_of(self, placed: Placement) -> bool:
        return (self.version, self.time) == (placed.version, placed.time)


class PlacementService:
    """Places pods, through a ledger whose state `view` shows."""

    def __init__(
        self,
        ledger: Ledger,
        view: StateView,
        selecting: FitEngine,
        guessing: AssumedPlacements,
        news: RecordSignal,
        rules: Callable[[], DemandRules],
        clock: Callable[[], float],
        fence_seconds: float = FENCE_SECONDS,
    ) -> None:
        """Propose what `selecting` chooses; `clock` is the time of the loop in seconds.

        Another extender's Binding is waited for `fence_seconds`.
        """
        self._ledger, self._view, self._rules = ledger, view, rules
        self._selecting, self._guessing = selecting, guessing
        self._news, self._clock = news, clock
        self._fence_seconds = fence_seconds
        self._kept: BoundedCache[_UnclearBinding] = BoundedCache(PODS_MAX)
        self._waited_for: BoundedCache[_UnclearBinding] = BoundedCache(PODS_MAX)
        self._fences: BoundedCache[int] = BoundedCache(PODS_MAX)

    def standing(self, asked: SchedulingRequest) -> Placement | None:
        """Return where a pod has cards already, as far as this replica knows."""
        placed = self._view.state.placement(asked.namespace, asked.key)
        if placed is None or placed.uid != asked.uid or not placed.node:
            return None
        return placed

    async def place(self, asked: SchedulingRequest, node: str, until: float) -> PlacementResult:
        """Have a pod placed on a node, by loop time `until`."""
        refused, tried = "", None
        for _ in range(CHOICES_MAX):
            placed = await self._awaited(asked, until)
            if placed is not None:
                return self._taken_up(asked, node, placed)
            chosen = self._selecting.choose_cards(asked, node)
            if isinstance(chosen, str):
                return PlacementResult(problem=refused or chosen)
            # Nothing that would change the answer has become known.
            if tried == (chosen.parts, self._selecting.inventory.position):
                break
            tried = chosen.parts, self._selecting.inventory.position
            self._guessing.guess(asked, node, chosen.parts, PLACING_SECONDS)
            since = self._clock()
            answer = await self._decided(self._command(asked, node, chosen), until)
            if isinstance(answer, Denial):
                refused = sentence(answer)
                if answer.reason not in _TRY_AGAIN:
                    break
            elif answer.changed:
                return PlacementResult(chosen.parts, Origin.NEW, since)
            if self._clock() >= until:
                break
            await self._news.wait(CATCH_UP_SECONDS)
        self._guessing.forget(asked)
        return PlacementResult(problem=refused)

    def keep(self, asked: SchedulingRequest, proposed: PlacementResult) -> None:
        """Leave it to the next call to bind a pod: what became of the Binding is not known."""
        placed = self.standing(asked)
        if placed is None or proposed.origin is not Origin.NEW or placed.version != asked.version:
            return
        self._kept.put(asked.uid, _UnclearBinding(placed.version, placed.time, proposed.since))

    def fences_at(self, asked: SchedulingRequest, placed: Placement) -> float:
        """Return the loop time from which another call's Binding is to be fenced.

        That is at once (-inf) where the pod has changed since: no Binding comes through any more.
        It is never (inf) for a placement without a version: extenders before the fence, or leaders
        before it, have made it, and its Binding may name any version.
        """
        if not placed.version:
            return math.inf
        if asked.version > placed.version:
            return -math.inf
        known = self._waited_for.get(asked.uid)
        if known is None or not known.is_of(placed):
            known = _UnclearBinding(placed.version, placed.time, self._clock())
            self._waited_for.put(asked.uid, known)
        doublings = min(self._fences.get(asked.uid) or 0, FENCE_DOUBLINGS_MAX)
        return known.since + self._fence_seconds * (1 << doublings)

    def fenced(self, asked: SchedulingRequest) -> None:
        """Take note that another call's Binding of a pod was fenced here."""
        self._fences.put(asked.uid, (self._fences.get(asked.uid) or 0) + 1)

    async def unplace(self, asked: SchedulingRequest, node: str, version: int) -> bool:
        """Give back the cards of a pod's placement of that version on a qualified node.

        Returns when this replica has applied that, or after a while. False when there is none any
        more, or when the ledger did not take it and settlement will.
        """
        where = asked.namespace, asked.key, asked.uid, node
        command = Unplace(*where, Cause.UNBOUND, ACTOR, version=version)
        self._guessing.forget(asked)
        for _ in range(UNPLACE_TRIES_MAX):
            answer = await self._ledger.submit(command)
            if not isinstance(answer, Denial):
                await self._applied(answer.position)
                return answer.changed
            await self._news.wait(CATCH_UP_SECONDS)
        return False

    async def _applied(self, position: int) -> None:
        """Wait until this replica has applied a position: another one may have decided it."""
        until = self._clock() + APPLIED_SECONDS
        while self._view.state.position < position and (left := until - self._clock()) > 0:
            await self._news.wait(left)

    async def _awaited(self, asked: SchedulingRequest, until: float) -> Placement | None:
        """Return where a pod has cards; wait for another's Binding until then, or the fence."""
        while True:
            placed = self.standing(asked)
            if placed is None or self._origin(asked, placed) is not Origin.OTHERS:
                return placed
            left = min(until, self.fences_at(asked, placed)) - self._clock()
            if left <= 0:
                return placed
            await self._news.wait(left)

    def _origin(self, asked: SchedulingRequest, placed: Placement) -> Origin:
        if placed.stage > Stage.PROPOSED:
            return Origin.BOUND
        kept = self._kept.get(asked.uid)
        if kept is None or not kept.is_of(placed) or asked.version != placed.version:
            return Origin.OTHERS
        return Origin.KEPT if self._clock() - kept.since < TAKE_UP_SECONDS else Origin.OTHERS

    def _taken_up(self, asked: SchedulingRequest, node: str, placed: Placement) -> PlacementResult:
        origin = self._origin(asked, placed)
        if origin is Origin.OTHERS:
            return PlacementResult(standing=placed)
        if placed.node != asked.of(node):
            return PlacementResult(problem=f"{Reason.POD_PLACED}: it has cards of {placed.node}")
        kept = self._kept.get(asked.uid)
        return PlacementResult(placed.parts, origin, kept.since if kept is not None else 0.0)

    def _command(self, asked: SchedulingRequest, node: str, chosen: ChosenCards) -> Place:
        name = asked.of(node)
        known = self._view.state.nodes.get(name)
        cards = known.cards if known is not None else ()
        return Place(
            asked.namespace,
            asked.key,
            asked.uid,
            name,
            chosen.parts,
            placement_overrides(chosen.parts, asked.wish, self._rules(), cards),
            chosen.unused_only,
            actor=ACTOR,
            version=asked.version,
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
            await asyncio.sleep(max(0.0, min(AGAIN_SECONDS, until - self._clock())))
            await self._idle(command.node, until)

    async def _idle(self, node: str, until: float) -> None:
        """Wait until a node, as far as is known here, is handing cards out to nobody."""
        short = local_name(node)
        while self._selecting.is_busy(short) and self._clock() < until:
            await self._news.wait(until - self._clock())
