"""Binding: a pod gets cards of the asked node in the ledger, then its Binding, or neither.

First the ledger, then the API server. Whatever ends this between the two leaves a placement without
a Binding: the next bind of the pod takes it up, or settlement proves that there is none and gives
the cards back. Only the extender that has placed a pod binds it.
"""

import contextlib
import math
from collections.abc import Callable
from typing import Final, NamedTuple

from extender.asking import Asked
from extender.attaching import Attached, Attaching, Outcome
from extender.locking import Locking
from extender.news import News
from extender.proposing import Origin, Proposed, Proposing
from ledger.core.cards import HAMI, Card
from ledger.kube.errors import ClusterError
from ledger.kube.objects import Pod
from ledger.kube.placement_annotations import annotations_of, labels_of
from ledger.log.view import View

ATTACH_MAX: Final = 3
"""How often a pod is bound that has changed meanwhile, without wanting other cards."""

LOCK_AGAIN_SECONDS: Final = 0.5
"""Pause before a node is looked at again that is locked for another pod."""

SEND_SECONDS: Final = 25.0
"""How long after a pod was placed its Binding may still be sent.

Settlement gives the cards back `settle_seconds` after the placement if the pod is not bound then,
and the API server may take 34 s over a Binding: one that is sent later might be stored when the
cards are somebody else's. `bind_wait_seconds` is no more than this.
"""

LATE: Final = "no Binding is sent so long after the pod was given its cards: try again"

UNDER_WAY: Final = "another bind of the pod may be under way; it is being settled: try again"


class Bound(NamedTuple):
    """What became of a bind, in a word for metrics, and why the pod is not bound."""

    outcome: str
    problem: str = ""


class Cluster(NamedTuple):
    """The two things that a bind does to a cluster."""

    attaching: Attaching
    locking: Locking


class Binding:
    """Binds pods of one cluster."""

    def __init__(
        self,
        view: View,
        proposing: Proposing,
        cluster: Cluster,
        news: News,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        """`clock` is the time of the loop, `now` Unix time, both in seconds."""
        self._view, self._proposing, self._news = view, proposing, news
        self._attaching, self._locking = cluster
        self._clock, self._now = clock, now

    async def bind(
        self, asked: Asked, node: str, until: float, again: Callable[[Pod], Asked | None]
    ) -> Bound:
        """Bind a pod to a node; waiting, for what passes, ends at loop time `until`.

        `again` reads a pod that has changed, None when it wants something else now.
        """
        if not asked.wish.wants_cards():
            return _told(await self._attach(asked, node, {}, {}, again, math.inf))
        proposed = await self._proposing.place(asked, node, until)
        if proposed.problem:
            return Bound("lost", proposed.problem)
        if proposed.origin is Origin.BOUND:
            return Bound("bound")
        if proposed.origin is Origin.OTHERS:
            return Bound("unclear", UNDER_WAY)
        problem = await self._locked(asked, node, until)
        if problem:
            await self._undo(asked, node, proposed)
            return Bound("locked", problem)
        cards = self._cards(asked, node)
        annotations = annotations_of(proposed.parts, node, cards, self._now())
        latest = proposed.since + SEND_SECONDS
        attached = await self._attach(asked, node, annotations, labels_of(node), again, latest)
        if attached.outcome in (Outcome.REFUSED, Outcome.CHANGED):
            await self._undo(asked, node, proposed)
        if attached.outcome is Outcome.UNCLEAR:
            self._proposing.keep(asked, proposed)
        return _told(attached)

    async def _attach(
        self,
        asked: Asked,
        node: str,
        annotations: dict[str, str],
        labels: dict[str, str],
        again: Callable[[Pod], Asked | None],
        latest: float,
    ) -> Attached:
        """Write the Binding, and again for a pod that changed and wants the same.

        None is sent later than loop time `latest`.
        """
        pod = asked.pod
        for _ in range(ATTACH_MAX):
            if self._clock() > latest:
                return Attached(Outcome.REFUSED, LATE, pod)
            attached = await self._attaching.attach(pod, node, annotations, labels)
            if attached.outcome is not Outcome.CHANGED or attached.pod is None:
                break
            pod = attached.pod
            found = again(pod)
            if found is None or found.wish != asked.wish:
                break
        return attached

    async def _locked(self, asked: Asked, node: str, until: float) -> str:
        """Lock a node that hands cards out to one pod at a time; return why not."""
        known = self._view.state.nodes.get(asked.of(node))
        if known is None or known.keeper != HAMI:
            return ""
        while True:
            try:
                problem = await self._locking.lock(asked.pod, node)
            except ClusterError as error:
                problem = f"node {node} cannot be locked: {error}"
            if not problem or self._clock() >= until:
                return problem
            await self._news.wait(LOCK_AGAIN_SECONDS)

    async def _undo(self, asked: Asked, node: str, proposed: Proposed) -> None:
        """Give back what this call took; what an earlier one took, its Binding may still need."""
        if proposed.origin is not Origin.NEW:
            return
        await self._proposing.unplace(asked, node)
        known = self._view.state.nodes.get(asked.of(node))
        if known is not None and known.keeper == HAMI:
            # A lock that stays is one of a pod without cards: it expires, or settlement ends it.
            with contextlib.suppress(ClusterError):
                await self._locking.unlock(asked.pod, node)

    def _cards(self, asked: Asked, node: str) -> tuple[Card, ...]:
        known = self._view.state.nodes.get(asked.of(node))
        return (*known.cards, *known.lost) if known is not None else ()


def _told(attached: Attached) -> Bound:
    if attached.outcome is Outcome.BOUND:
        return Bound(attached.outcome.value)
    if attached.outcome is Outcome.UNCLEAR:
        remedy = "its cards are kept for it, and the next try takes them up"
        return Bound(
            attached.outcome.value, f"whether it is bound is not known: {attached.reason}; {remedy}"
        )
    return Bound(attached.outcome.value, attached.reason)
