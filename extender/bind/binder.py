"""Binding: a pod gets cards of the asked node in the ledger, then its Binding, or neither.

First the ledger, then the API server. What ends this between the two leaves a placement without a
Binding: the next bind of the pod takes it up; or another extender fences its Binding, gives the
cards back and begins anew; or settlement proves that there is none and gives the cards back. Only
the extender that has placed a pod binds it.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from extender.bind.binding_attempt import BindingOutcome, BindingState, BindingWriter
from extender.bind.binding_fence import BindingFence
from extender.bind.hami_node_lock import HamiNodeLock
from extender.bind.placement_service import Origin, PlacementResult, PlacementService
from extender.scheduler_api.scheduling_request import SchedulingRequest, version_of
from ledger.core.model.cards import HAMI, Card, Placement
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.errors import ClusterError
from ledger.kube.api.objects import Pod
from ledger.kube.hami.placement_annotations import annotations_of, labels_of
from ledger.log.ledger import StateView
from ledger.log.record_signal import RecordSignal

ATTACH_MAX: Final = 3
"""How often a pod is bound that has changed meanwhile, without wanting other cards."""

LOCK_AGAIN_SECONDS: Final = 0.5
"""Pause before a node is looked at again that is locked for another pod."""

SEND_SECONDS: Final = 25.0
"""How long after a pod was placed its Binding may still be sent.

Settlement gives the cards back `settle_seconds` after the placement if the pod is not bound then,
and the API server may take 34 s over a Binding: one that is sent later might be stored when the
cards are another pod's. `bind_wait_seconds` is no more than this.
"""

LATE: Final = "no Binding is sent so long after the pod was given its cards: try again"

UNDER_WAY: Final = "another bind of the pod may be under way; it is being settled: try again"

NOT_FENCED: Final = "the fence did not change the pod, so that bind may still come through"

OTHER_WISH: Final = "the pod has changed and asks for other cards now: try again"

Again = Callable[[Pod], SchedulingRequest | None]
"""Reads a pod that has changed; None when it cannot be understood any more."""

_log: Final = logging.getLogger(__name__)


class BindResult(NamedTuple):
    """What became of a bind, in a word for metrics, and why the pod is not bound."""

    outcome: str
    problem: str = ""


class ClusterWrites(NamedTuple):
    """The three things that a bind does to a cluster."""

    attaching: BindingWriter
    locking: HamiNodeLock
    fencing: BindingFence


class Binder:
    """Binds pods of one cluster."""

    def __init__(
        self,
        view: StateView,
        proposing: PlacementService,
        cluster: ClusterWrites,
        news: RecordSignal,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """`clock` is the time of the loop, `now` Unix time, both in seconds."""
        self._view, self._proposing, self._news = view, proposing, news
        self._attaching, self._locking, self._fencing = cluster
        self._clock, self._now = clock, now

    async def bind(
        self, asked: SchedulingRequest, node: str, until: float, again: Again
    ) -> BindResult:
        """Bind a pod to a node; waiting, for what passes, ends at loop time `until`."""
        if not asked.wish.wants_cards():
            return await self._bound_without_cards(asked, node, again)
        for _ in range(ATTACH_MAX):
            proposed = await self._proposing.place(asked, node, until)
            if proposed.standing is not None:
                found = await self._fenced(asked, node, proposed.standing)
            else:
                found = await self._bound(asked, node, until, proposed)
            if isinstance(found, BindResult):
                return found
            anew = again(found)
            if anew is None or anew.wish != asked.wish:
                return BindResult("refused", OTHER_WISH)
            asked = anew
        return BindResult("changed", "the pod changes too often: try again")

    async def _bound(
        self, asked: SchedulingRequest, node: str, until: float, proposed: PlacementResult
    ) -> BindResult | Pod:
        """Bind a pod to the cards that it was given; return the pod where it has changed."""
        if proposed.problem:
            return BindResult("lost", proposed.problem)
        if proposed.origin is Origin.BOUND:
            return BindResult("bound")
        if proposed.origin is Origin.OTHERS:
            return BindResult("unclear", UNDER_WAY)
        problem = await self._locked(asked, node, until)
        if problem:
            await self._undo(asked, node, proposed)
            return BindResult("locked", problem)
        attached = await self._attached(asked, node, proposed)
        if attached.outcome is BindingState.CHANGED and attached.pod is not None:
            await self._give_back(asked, asked.of(node), asked.version)
            return attached.pod
        if attached.outcome in (BindingState.REFUSED, BindingState.CHANGED):
            await self._undo(asked, node, proposed)
        if attached.outcome is BindingState.UNCLEAR:
            self._proposing.keep(asked, proposed)
        return _told(attached)

    async def _attached(
        self, asked: SchedulingRequest, node: str, proposed: PlacementResult
    ) -> BindingOutcome:
        """Write the one Binding of a placement, unless it is too late for that."""
        if self._clock() > proposed.since + SEND_SECONDS:
            return BindingOutcome(BindingState.REFUSED, LATE, asked.pod)
        cards = self._cards(asked, node)
        annotations = annotations_of(proposed.parts, node, cards, self._now())
        return await self._attaching.attach(asked.pod, node, annotations, labels_of(node))

    async def _bound_without_cards(
        self, asked: SchedulingRequest, node: str, again: Again
    ) -> BindResult:
        """Write the Binding of a pod without cards, and again where the pod has changed."""
        pod = asked.pod
        for _ in range(ATTACH_MAX):
            attached = await self._attaching.attach(pod, node, {}, {})
            if attached.outcome is not BindingState.CHANGED or attached.pod is None:
                break
            pod = attached.pod
            found = again(pod)
            if found is None or found.wish != asked.wish:
                break
        return _told(attached)

    async def _fenced(
        self, asked: SchedulingRequest, node: str, standing: Placement
    ) -> BindResult | Pod:
        """Give back the cards of another call's placement, once its Binding cannot come any more.

        Returns the pod to begin anew with.
        """
        if self._clock() < self._proposing.fences_at(asked, standing):
            return BindResult("unclear", UNDER_WAY)
        try:
            found = await self._fencing.fence(asked.pod, standing.version)
        except ClusterError as error:
            return BindResult("unclear", f"{UNDER_WAY} ({error})")
        if found is None:
            return BindResult("refused", "the pod is gone")
        if found.spec.node_name:
            where = found.spec.node_name
            return (
                BindResult("bound")
                if where == node
                else BindResult("refused", f"it is bound to {where}")
            )
        if version_of(found) <= standing.version:
            return BindResult("unclear", f"{UNDER_WAY} ({NOT_FENCED})")
        if await self._give_back(asked, standing.node, standing.version):
            self._proposing.fenced(asked)
            _log.info("binding_fenced", extra={"namespace": asked.namespace, "key": asked.key})
        return found

    async def _locked(self, asked: SchedulingRequest, node: str, until: float) -> str:
        """Lock a node that hands cards out to one pod at a time; return why not."""
        if not self._is_hamis(asked.of(node)):
            return ""
        while True:
            try:
                problem = await self._locking.lock(asked.pod, node)
            except ClusterError as error:
                problem = f"node {node} cannot be locked: {error}"
            if not problem or self._clock() >= until:
                return problem
            await self._news.wait(LOCK_AGAIN_SECONDS)

    async def _undo(self, asked: SchedulingRequest, node: str, proposed: PlacementResult) -> None:
        """Give back what this call took; what an earlier one took, its Binding may still need."""
        if proposed.origin is Origin.NEW:
            await self._give_back(asked, asked.of(node), asked.version)

    async def _give_back(self, asked: SchedulingRequest, where: str, version: int) -> bool:
        """Give back the cards and the lock of a placement whose Binding cannot come any more.

        Another extender may have fenced it as well, and have placed the pod anew: then what stands
        now is that extender's, and so is the lock of the node. False when there was nothing left.
        """
        given = await self._proposing.unplace(asked, where, version)
        standing = self._proposing.standing(asked)
        if standing is None or standing.node != where or standing.version == version:
            await self._unlock(asked, where)
        return given

    async def _unlock(self, asked: SchedulingRequest, where: str) -> None:
        """Give a pod's lock of a qualified node back, where nodes have locks.

        A lock that stays is one of a pod without cards: it expires, or settlement ends it.
        """
        if self._is_hamis(where):
            with contextlib.suppress(ClusterError):
                await self._locking.unlock(asked.pod, local_name(where))

    def _is_hamis(self, where: str) -> bool:
        known = self._view.state.nodes.get(where)
        return known is not None and known.keeper == HAMI

    def _cards(self, asked: SchedulingRequest, node: str) -> tuple[Card, ...]:
        known = self._view.state.nodes.get(asked.of(node))
        return (*known.cards, *known.lost) if known is not None else ()


def _told(attached: BindingOutcome) -> BindResult:
    if attached.outcome is BindingState.BOUND:
        return BindResult(attached.outcome.value)
    if attached.outcome is BindingState.UNCLEAR:
        remedy = "its cards are kept for it, and the next try takes them up"
        return BindResult(
            attached.outcome.value, f"whether it is bound is not known: {attached.reason}; {remedy}"
        )
    return BindResult(attached.outcome.value, attached.reason)
