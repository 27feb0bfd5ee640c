"""The placement service: it asks the ledger for cards of a node, and for others after a refusal.

The cards are chosen on arrays that are a moment old and may lack the latest placements of another
extender. The ledger decides. When it finds a card taken, another card of the same node may do, so
the cards are chosen again on the newer arrays.

Two binds of one pod may arrive, at two extenders or again after an unclear answer. Its Binding is
sent by the extender that placed it and by no other one: otherwise one could give the cards back
while the other's Binding is on its way. The others wait for the outcome. After a crash there is
none, so they wait for a few seconds, fence the Bindings of that placement
(`extender.bind.binding_fence`), give its cards back and start over.

That rests on one rule: the Bindings to the cards of a placement all name the resourceVersion that
the ledger has with it. A pod that has changed is placed again before it is bound.
"""

import asyncio
import math
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from extender.fit.inventory_fit import ChosenCards, InventoryFit
from extender.inventory.assumed_placements import PLACING_SECONDS, AssumedPlacements
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_api.scheduling_request import PODS_MAX, BoundedCache, SchedulingRequest
from ledger.core.model.cards import Parts, Placement, Stage
from ledger.core.model.commands import Place, Unplace
from ledger.core.model.denials import Denial, Reason, sentence
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import local_name
from ledger.core.model.state import State
from ledger.kube.requests.quota_demand_of_placement import placement_overrides
from ledger.log.ledger import Accepted
from ledger.log.state_change_signal import StateChangeSignal

ACTOR: Final = "extender"

CHOICES_MAX: Final = 8
"""How often cards of one node are chosen within one bind."""

CATCH_UP_SECONDS: Final = 0.25
"""How long to wait for the records by which the ledger refused a card."""

AGAIN_SECONDS: Final = 0.1
"""Pause between a record and the next try: a busy log has many records a second, and each waiting
bind would submit a command after every one."""

TAKE_UP_SECONDS: Final = 10.0
"""Largest age of an earlier call's placement that this call may bind.

Settlement undoes it once no Binding can be under way any more, counted from its beginning. The API
server may take 34 s over a Binding, so none may be sent late.
"""

FENCE_SECONDS: Final = 3.0
"""How long another extender's Binding is waited for before it is fenced. Most take a tenth of a
second; that it is too short for one costs this one a second try and no cards."""

FENCE_DOUBLINGS_MAX: Final = 3
"""How often that pause doubles for a pod that was fenced here before, so that two extenders of a
slow API server do not refuse one another's Bindings for ever."""

APPLIED_SECONDS: Final = 2.0
"""How long to wait until this replica has applied the return of cards. Until then the old placement
is still in the state of this replica, in the way of the next one."""

UNPLACE_TRIES_MAX: Final = 3
"""How often the return of cards is tried; afterwards settlement reads the pod and returns them."""

_WAIT_FOR: Final = frozenset(
    {Reason.NODE_BUSY, Reason.POD_UNKNOWN, Reason.OVERLOADED, Reason.LEDGER_UNAVAILABLE}
)
"""Reasons that pass by themselves, for example once another pod has its cards."""

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
"""Reasons about these cards, where others of the node may do, or about another bind of the pod."""


class Origin(Enum):
    """The call that has placed a pod, which alone may send its Binding."""

    NEW = "new"
    """This call: it sends the Binding, and gives the cards back where that is refused."""
    KEPT = "kept"
    """An earlier call whose Binding has an unknown outcome: this call may send another."""
    OTHERS = "others"
    """Another call, which may be about to send its Binding: this call sends none."""
    BOUND = "bound"
    """Irrelevant, because the pod is bound."""


class PlacementResult(msgspec.Struct, frozen=True):
    """The cards that a pod has now, or the `problem` because of which it has none.

    `since` is a loop time in seconds at which the call that placed it had not done so yet.
    `standing` is the placement of another call, which is in the way of this one.
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


def placement_of(state: State, request: SchedulingRequest) -> Placement | None:
    """Return the placement of a pod that has cards already; None if it has none."""
    placed = state.placement(request.namespace, request.key)
    if placed is None or placed.uid != request.uid or not placed.node:
        return None
    return placed


class PlacementService:
    """Places pods through the ledger."""

    def __init__(
        self,
        ports: ExtenderPorts,
        *,
        fit: InventoryFit,
        assumed: AssumedPlacements,
        signal: StateChangeSignal,
        clock: Callable[[], float],
        fence_seconds: float = FENCE_SECONDS,
    ) -> None:
        """`clock` is the time of the loop in seconds.

        The Binding of another extender is waited for `fence_seconds`.
        """
        self.fit, self.clock = fit, clock
        self._ports, self._assumed, self._signal = ports, assumed, signal
        self._fence_seconds = fence_seconds
        self._kept: BoundedCache[_UnclearBinding] = BoundedCache(PODS_MAX)
        self._waited_for: BoundedCache[_UnclearBinding] = BoundedCache(PODS_MAX)
        self._fences: BoundedCache[int] = BoundedCache(PODS_MAX)

    async def place(self, request: SchedulingRequest, node: str, until: float) -> PlacementResult:
        """Place a pod on a node, by loop time `until`."""
        refused, tried = "", None
        for _ in range(CHOICES_MAX):
            placed = await self._awaited(request, until)
            if placed is not None:
                return self._taken_up(request, node, placed)
            chosen = self.fit.choose_cards(request, node)
            if isinstance(chosen, str):
                return PlacementResult(problem=refused or chosen)
            # Neither the choice nor the inventory has changed, so the answer would be the same.
            if tried == (chosen.parts, self.fit.inventory.position):
                break
            tried = chosen.parts, self.fit.inventory.position
            self._assumed.assume(request, node, chosen.parts, PLACING_SECONDS)
            since = self.clock()
            answer = await self._decided(self._command(request, node, chosen), until)
            if isinstance(answer, Denial):
                refused = sentence(answer)
                if answer.reason not in _TRY_AGAIN:
                    break
            elif answer.changed:
                return PlacementResult(chosen.parts, Origin.NEW, since)
            if self.clock() >= until:
                break
            await self._signal.wait(CATCH_UP_SECONDS)
        self._assumed.forget(request)
        return PlacementResult(problem=refused)

    def keep(self, request: SchedulingRequest, proposed: PlacementResult) -> None:
        """Let the next call bind a pod, because the outcome of the Binding is unknown."""
        placed = placement_of(self._ports.view.state, request)
        if placed is None or proposed.origin is not Origin.NEW or placed.version != request.version:
            return
        self._kept[request.uid] = _UnclearBinding(placed.version, placed.time, proposed.since)

    def fences_at(self, request: SchedulingRequest, placed: Placement) -> float:
        """Return the loop time from which another call's Binding is to be fenced.

        That is at once (-inf) where the pod has changed since: no Binding comes through any more.
        It is never (inf) for a placement without a version: extenders before the fence, or leaders
        before it, have made it, and its Binding may name any version.
        """
        if not placed.version:
            return math.inf
        if request.version > placed.version:
            return -math.inf
        known = self._waited_for.get(request.uid)
        if known is None or not known.is_of(placed):
            known = _UnclearBinding(placed.version, placed.time, self.clock())
            self._waited_for[request.uid] = known
        doublings = min(self._fences.get(request.uid) or 0, FENCE_DOUBLINGS_MAX)
        return known.since + self._fence_seconds * (1 << doublings)

    def note_fence(self, request: SchedulingRequest) -> None:
        """Count a fence of another call's Binding of a pod."""
        self._fences[request.uid] = (self._fences.get(request.uid) or 0) + 1

    async def unplace(self, request: SchedulingRequest, node: str, version: int) -> bool:
        """Give back the cards of a pod's placement of that version on a qualified node.

        Returns when this replica has applied that, or after a while. Returns False if there is no
        such placement, or if the ledger refused the command, which settlement then repeats.
        """
        where = request.namespace, request.key, request.uid, node
        command = Unplace(*where, Cause.UNBOUND, ACTOR, version=version)
        self._assumed.forget(request)
        for _ in range(UNPLACE_TRIES_MAX):
            answer = await self._ports.ledger.submit(command)
            if not isinstance(answer, Denial):
                await self._applied(answer.position)
                return answer.changed
            await self._signal.wait(CATCH_UP_SECONDS)
        return False

    async def _applied(self, position: int) -> None:
        """Wait until this replica has applied a position, perhaps of another replica."""
        until = self.clock() + APPLIED_SECONDS
        while self._ports.view.state.position < position and (left := until - self.clock()) > 0:
            await self._signal.wait(left)

    async def _awaited(self, request: SchedulingRequest, until: float) -> Placement | None:
        """Return the placement of a pod; wait for the Binding of another call, or its fence."""
        while True:
            placed = placement_of(self._ports.view.state, request)
            if placed is None or self._origin(request, placed) is not Origin.OTHERS:
                return placed
            left = min(until, self.fences_at(request, placed)) - self.clock()
            if left <= 0:
                return placed
            await self._signal.wait(left)

    def _origin(self, request: SchedulingRequest, placed: Placement) -> Origin:
        if placed.stage > Stage.PROPOSED:
            return Origin.BOUND
        kept = self._kept.get(request.uid)
        if kept is None or not kept.is_of(placed) or request.version != placed.version:
            return Origin.OTHERS
        return Origin.KEPT if self.clock() - kept.since < TAKE_UP_SECONDS else Origin.OTHERS

    def _taken_up(
        self, request: SchedulingRequest, node: str, placed: Placement
    ) -> PlacementResult:
        origin = self._origin(request, placed)
        if origin is Origin.OTHERS:
            return PlacementResult(standing=placed)
        if placed.node != f"{request.cluster}/{node}":
            return PlacementResult(problem=f"{Reason.POD_PLACED}: it has cards of {placed.node}")
        kept = self._kept.get(request.uid)
        return PlacementResult(placed.parts, origin, kept.since if kept is not None else 0.0)

    def _command(self, request: SchedulingRequest, node: str, chosen: ChosenCards) -> Place:
        name = f"{request.cluster}/{node}"
        known = self._ports.view.state.nodes.get(name)
        cards = known.cards if known is not None else ()
        return Place(
            request.namespace,
            request.key,
            request.uid,
            name,
            chosen.parts,
            placement_overrides(chosen.parts, request.devices, self._ports.rules(), cards),
            chosen.unused_only,
            actor=ACTOR,
            version=request.version,
        )

    async def _decided(self, command: Place, until: float) -> Accepted | Denial:
        """Submit a command; wait and submit it again while its denial may pass by itself."""
        while True:
            answer = await self._ports.ledger.submit(command)
            if not isinstance(answer, Denial) or answer.reason not in _WAIT_FOR:
                return answer
            left = until - self.clock()
            if left <= 0:
                return answer
            await self._signal.wait(left)
            await asyncio.sleep(max(0.0, min(AGAIN_SECONDS, until - self.clock())))
            await self._idle(command.node, until)

    async def _idle(self, node: str, until: float) -> None:
        """Wait until a node hands out no cards, according to the inventory of this replica."""
        short = local_name(node)
        while self.fit.hands_out(short) and self.clock() < until:
            await self._signal.wait(until - self.clock())
