"""Placement takeover: whether a bind may send the Binding of a placement that is there already.

Two binds of one pod may arrive, at two extenders or again after an unclear answer. Only the
extender that placed the pod sends its Binding: otherwise one extender could give the cards back
while the Binding of the other is on its way. After an unclear answer the cards are kept, and the
next bind at the same extender takes them up. All other binds wait for the outcome. After a crash
there is none, so they fence that Binding (`extender.bind.binding_fence`), give its cards back and
start over.

All Bindings to the cards of a placement name the resourceVersion that the ledger has stored with
the placement. A pod that has changed since is placed again before it is bound.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from extender.bind.binding_fence import TimedPlacement
from extender.scheduler_api.scheduling_request import PODS_MAX, BoundedCache, SchedulingRequest
from ledger.core.model.cards import Parts, Placement, Stage
from ledger.core.model.denials import Reason

TAKE_UP_SECONDS: Final = 10.0
"""Largest age of an earlier call's placement that this call may bind.

Settlement undoes it once no Binding can be under way any more, counted from its beginning. The API
server may take 34 s over a Binding, so none may be sent late.
"""


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

    `since` is a loop time in seconds just before the pod was placed. `standing` is the placement of
    another call, which is in the way of this one.
    """

    parts: Parts = ()
    origin: Origin = Origin.OTHERS
    since: float = 0.0
    problem: str = ""
    standing: Placement | None = None


class PlacementTakeover:
    """The placements that the next bind of their pods may take up."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` is the time of the loop in seconds."""
        self._clock = clock
        self._kept: BoundedCache[TimedPlacement] = BoundedCache(PODS_MAX)

    def keep(
        self, request: SchedulingRequest, proposed: PlacementResult, placed: Placement | None
    ) -> None:
        """Let the next bind of a pod take up its placement, whose Binding has an unknown outcome.

        `placed` is the placement of the pod in the state.
        """
        if placed is None or proposed.origin is not Origin.NEW or placed.version != request.version:
            return
        self._kept[request.uid] = TimedPlacement(placed.version, placed.time, proposed.since)

    def origin(self, request: SchedulingRequest, placed: Placement) -> Origin:
        """Return the call that has placed a pod; only that call sends the Binding."""
        if placed.stage > Stage.PROPOSED:
            return Origin.BOUND
        kept = self._kept.get(request.uid)
        if kept is None or not kept.is_of(placed) or request.version != placed.version:
            return Origin.OTHERS
        return Origin.KEPT if self._clock() - kept.since < TAKE_UP_SECONDS else Origin.OTHERS

    def result(self, request: SchedulingRequest, node: str, placed: Placement) -> PlacementResult:
        """Return the cards of an earlier placement, or why this bind cannot use them."""
        origin = self.origin(request, placed)
        if origin is Origin.OTHERS:
            return PlacementResult(standing=placed)
        if placed.node != f"{request.cluster}/{node}":
            return PlacementResult(problem=f"{Reason.POD_PLACED}: it has cards of {placed.node}")
        kept = self._kept.get(request.uid)
        return PlacementResult(placed.parts, origin, kept.since if kept is not None else 0.0)
