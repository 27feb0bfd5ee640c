"""Place or choose again: `bind` asks the ledger for cards of a node, and for others if refused.

The cards are chosen on arrays that are a moment old and may lack the latest placements of another
extender. The ledger decides. If it refuses a card that another pod has taken, the cards are chosen
again on newer arrays, because another card of the node may do. After a denial that passes by
itself, the same command is submitted again. For a pod that another bind has placed, this bind waits
for that Binding (`placement_takeover`).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from extender.bind.binding_fence import FENCE_SECONDS, FenceWait
from extender.bind.placement_takeover import Origin, PlacementResult, PlacementTakeover
from extender.fit.inventory_fit import ChosenCards, InventoryFit
from extender.inventory.assumed_placements import PLACING_SECONDS, AssumedPlacements
from extender.scheduler_api.extender_ports import ExtenderPorts
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.model.cards import Placement
from ledger.core.model.commands import Place, Unplace
from ledger.core.model.denials import Denial, Reason, sentence
from ledger.core.model.events import Cause
from ledger.core.model.qualified_names import local_name
from ledger.core.model.state import State
from ledger.kube.requests.placements.quota_demand_of_placement import placement_overrides
from ledger.log.ledger_port import Accepted
from ledger.log.state_change_signal import StateChangeSignal

ACTOR: Final = "extender"

CHOICES_MAX: Final = 8
"""How often cards of one node are chosen within one bind."""

CATCH_UP_SECONDS: Final = 0.25
"""How long to wait for the records by which the ledger refused a card."""

AGAIN_SECONDS: Final = 0.1
"""Pause between a record and the next try. Without it, each waiting bind would submit a command
after every record, and a busy log has many records a second."""

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
        self.fence_wait = FenceWait(clock, fence_seconds)
        self.takeover = PlacementTakeover(clock)

    async def place(self, request: SchedulingRequest, node: str, until: float) -> PlacementResult:
        """Place a pod on a node, by loop time `until`."""
        refused, tried = "", None
        for _ in range(CHOICES_MAX):
            placed = await self._awaited(request, until)
            if placed is not None:
                return self.takeover.result(request, node, placed)
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
            if placed is None or self.takeover.origin(request, placed) is not Origin.OTHERS:
                return placed
            left = min(until, self.fence_wait.over_at(request, placed)) - self.clock()
            if left <= 0:
                return placed
            await self._signal.wait(left)

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
