"""Preemption: less important pods are evicted from cards that a pod fits nowhere without.

The scheduler's own preemption never sees a shortage of cards, so this is done here, beside the
answers of filter, for one pod at a time. The intent is in the log before anybody is evicted: a
claim, which keeps the cards for the pod while its victims leave, and names them. Whoever is asked
about the pod next goes on with its claim, also after a crash; settlement withdraws it in the end.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import structlog

from extender import preempting, victims
from extender.asking import Asked, Remembered
from extender.evictable import Budgets, Cluster, Evictable, evictable, is_leaving, priority_of
from extender.news import News
from extender.proposing import ACTOR, CATCH_UP_SECONDS
from extender.selecting import Selecting
from extender.telling import PREEMPTED, PREEMPTION_STARTED, Telling
from extender.victims import Candidate, Cost, Subject
from ledger.core.cards import Claim, Parts
from ledger.core.commands import MakeRoom, Withdraw
from ledger.core.denials import Denial, sentence
from ledger.core.events import Cause
from ledger.kube.errors import BudgetExhausted, ClusterError, Conflict, NotFound
from ledger.kube.objects import Pod
from ledger.kube.resources import PODS
from ledger.log.submission import Ledger
from ledger.log.view import View
from ledger.runtime.counting import Count

WAITING_MAX: Final = 64
"""Pods that wait for others to be evicted; what comes then is taken when it is asked for again."""

NODES_MAX: Final = 32
"""Nodes that are looked at for a pod at a time; the next ones come when it is asked for again."""

PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
"""Pauses between two tries for one pod; they double once all nodes were looked at."""

REMEMBERED_MAX: Final = 1_024
"""Pods of which it is remembered what was tried."""

NEVER: Final = "Never"
"""The preemptionPolicy of a pod that waits and evicts nobody."""

_logger: Final = structlog.get_logger("extender.preemption")


class Choice(NamedTuple):
    """The cards that a pod gets on a node, and who leaves for it; only `evicted` have to be."""

    node: str
    parts: Parts
    leaving: tuple[Subject, ...]
    evicted: tuple[Candidate, ...]

    def cost(self) -> Cost:
        """Return what it costs that they leave."""
        return victims.cost(self.evicted)


class _Tried(NamedTuple):
    """What was tried for a pod: the nodes of this round, and when the next try may be."""

    nodes: frozenset[str] = frozenset()
    pause: float = PAUSE_SECONDS
    until: float = float("-inf")


class Preemption:
    """Makes room for the pods of one cluster, as long as `run` runs."""

    def __init__(
        self,
        view: View,
        ledger: Ledger,
        cluster: Cluster,
        selecting: Selecting,
        telling: Telling,
        news: News,
        clock: Callable[[], float],
        count: Count,
    ) -> None:
        """Claim cards through a ledger; `clock` is the time of the loop in seconds."""
        self._view, self._ledger, self._cluster = view, ledger, cluster
        self._selecting, self._telling, self._news = selecting, telling, news
        self._clock, self._count = clock, count
        self._waiting: asyncio.Queue[tuple[Asked, Sequence[str]]] = asyncio.Queue(WAITING_MAX)
        self._queued: set[str] = set()
        self._tried: Remembered[_Tried] = Remembered(REMEMBERED_MAX)

    def want(self, asked: Asked, nodes: Sequence[str]) -> None:
        """Have room made for a pod that fits nowhere, on one of the nodes where that is possible.

        Nothing happens for a pod that is waiting for it, or was tried a moment ago.
        """
        known = self._tried.get(asked.uid) or _Tried()
        if not nodes or asked.pod.spec.preemption_policy == NEVER or asked.uid in self._queued:
            return
        if self._clock() < known.until or self._waiting.full():
            return
        self._queued.add(asked.uid)
        self._waiting.put_nowait((asked, nodes))

    async def run(self) -> None:
        """Make room for one pod after the other until cancelled."""
        while True:
            asked, nodes = await self._waiting.get()
            try:
                outcome = await self._make_room(asked, nodes)
            except ClusterError as error:
                outcome = "unavailable"
                _logger.warning("no_room_made", pod=asked.key, reason=str(error))
            self._queued.discard(asked.uid)
            self._count("preemptions_total", outcome)

    async def _make_room(self, asked: Asked, nodes: Sequence[str]) -> str:
        """Go on with what is claimed for a pod, or claim something; return what became of it."""
        self._pause(asked, nodes)
        pod = await self._cluster.get_pod(asked.pod.metadata.namespace, asked.pod.metadata.name)
        if not _waits(pod, asked.uid):
            return "gone"
        standing = self._standing(asked)
        if standing is None:
            if self._fits(asked, nodes):
                return "fits"
            standing = await self._claimed(asked, await self._choices(asked, nodes))
        if standing is None:
            return "nowhere"
        outcome = await self._evict(asked, *standing)
        self._begin_anew(asked, standing[0] if outcome == "protected" else "")
        return outcome

    def _pause(self, asked: Asked, nodes: Sequence[str]) -> None:
        """Try the pod not again for a while: longer, once every node was looked at."""
        known = self._tried.get(asked.uid) or _Tried()
        if known.nodes.issuperset(nodes):
            known = _Tried(pause=min(2 * known.pause, PAUSE_SECONDS_MAX))
        self._tried.put(asked.uid, known._replace(until=self._clock() + known.pause))

    def _begin_anew(self, asked: Asked, avoided: str) -> None:
        """Begin a round in which all nodes are looked at, but one where that was no use."""
        nodes = frozenset({avoided.partition("/")[2]} if avoided else ())
        self._tried.put(asked.uid, _Tried(nodes, until=self._clock() + PAUSE_SECONDS))

    def _standing(self, asked: Asked) -> tuple[str, Claim] | None:
        """Return what is kept for a pod, and on which node."""
        for node, claims in self._view.state.claims.items():
            for claim in claims:
                if (claim.namespace, claim.key, claim.uid) == (
                    asked.namespace,
                    asked.key,
                    asked.uid,
                ):
                    return node, claim
        return None

    def _fits(self, asked: Asked, nodes: Sequence[str]) -> bool:
        """Return whether the pod fits somewhere meanwhile, or only guesses are in its way."""
        rows = [row for row in self._selecting.rows_of(nodes) if row is not None]
        with self._selecting.inventory.overlay.without_guesses():
            fits = self._selecting.fits(asked, np.array(rows, np.int64))
        return bool(fits.feasible.any())

    async def _choices(self, asked: Asked, nodes: Sequence[str]) -> list[Choice]:
        """Return what could be done on some of the nodes, the cheapest first."""
        known = self._tried.get(asked.uid) or _Tried()
        budgets = Budgets(self._cluster)
        found = []
        chosen = [node for node in nodes if node not in known.nodes][:NODES_MAX]
        self._tried.put(asked.uid, known._replace(nodes=known.nodes | set(chosen)))
        for node in chosen:
            there = await evictable(self._cluster, self._view.state, asked, node, budgets)
            choice = self._choice(asked, node, there)
            if choice is not None:
                found.append(choice)
        return sorted(found, key=lambda one: (one.cost(), one.node))

    def _choice(self, asked: Asked, node: str, there: Evictable) -> Choice | None:
        """Return who leaves a node, and what the pod gets there then; None if it is no use.

        What is only guessed is passed over: the ledger will know.
        """
        gone = [placed for _, placed in there.leaving]

        def cards(leaving: Sequence[Candidate]) -> Parts | None:
            placed = [*gone, *(one.placed for one in leaving)]
            return preempting.room_after(self._selecting, asked, node, placed)

        with self._selecting.inventory.overlay.without_guesses():
            evicted = victims.choose(
                there.candidates, there.allowed, lambda leaving: cards(leaving) is not None
            )
            parts = cards(evicted) if evicted is not None else None
        if evicted is None or parts is None:
            return None
        return Choice(node, parts, tuple(subject for subject, _ in there.leaving), evicted)

    async def _claimed(self, asked: Asked, choices: Sequence[Choice]) -> tuple[str, Claim] | None:
        """Claim the cheapest of the choices that the ledger takes.

        Nothing is claimed for a pod for which somebody else did so while nodes were looked at.
        """
        for choice in choices:
            if self._standing(asked) is not None:
                break
            # Those that a budget protects come first: if one may not leave, nobody has left yet.
            evicted = sorted(choice.evicted, key=lambda one: not one.budgets)
            leaving = (*(one.subject for one in evicted), *choice.leaving)
            node = asked.of(choice.node)
            command = MakeRoom(
                asked.namespace, asked.key, asked.uid, node, choice.parts, leaving, ACTOR
            )
            answer = await self._ledger.submit(command)
            if isinstance(answer, Denial):
                _logger.info("no_room_claimed", pod=asked.key, reason=sentence(answer))
                continue
            note = f"evicting {len(evicted)} pods of lower priority from node {choice.node}"
            self._telling.tell(asked.pod, PREEMPTION_STARTED, note)
            await self._reached(answer.position)
            return node, Claim(asked.namespace, asked.key, asked.uid, choice.parts, leaving, 0)
        return None

    async def _reached(self, position: int) -> None:
        """Wait a moment until this replica knows what another one may have stored for it."""
        until = self._clock() + CATCH_UP_SECONDS
        while self._view.state.position < position and self._clock() < until:
            await self._news.wait(until - self._clock())

    async def _evict(self, asked: Asked, node: str, claim: Claim) -> str:
        """Evict the victims of a claim that are there still, as long as it stands."""
        for subject in claim.victims:
            if not self._stands(asked, node, claim):
                return "overtaken"
            pod = await self._victim(asked, subject)
            if pod is None:
                continue
            try:
                await self._cluster.evict(pod.metadata.namespace, pod.metadata.name, subject[2])
            except (NotFound, Conflict):
                continue  # it is gone, or another one has its name
            except BudgetExhausted as error:
                _logger.info("eviction_refused", pod=subject[1], reason=str(error))
                await self._ledger.submit(
                    Withdraw(asked.namespace, asked.key, asked.uid, Cause.PROTECTED, ACTOR)
                )
                return "protected"
            self._tell_preempted(asked, pod, node)
        return "evicted"

    def _stands(self, asked: Asked, node: str, claim: Claim) -> bool:
        """Return whether a claim is still the one: the pod lives, and nobody claimed elsewhere."""
        standing = self._standing(asked)
        if standing is None:
            return False
        known = standing[1]
        return (standing[0], known.parts, known.victims) == (node, claim.parts, claim.victims)

    async def _victim(self, asked: Asked, subject: Subject) -> Pod | None:
        """Read a victim; None when it is gone, leaves already, or is important by now."""
        namespace, key, uid = subject
        name = key.removeprefix(f"{PODS.name}/")
        pod = await self._cluster.get_pod(namespace.partition("/")[2], name)
        if pod is None or pod.metadata.uid != uid or is_leaving(pod):
            return None
        return pod if priority_of(pod) < priority_of(asked.pod) else None

    def _tell_preempted(self, asked: Asked, pod: Pod, node: str) -> None:
        self._count("pods_preempted_total")
        by = f"pod {asked.uid} of priority {priority_of(asked.pod)}"
        where = node.partition("/")[2]
        self._telling.tell(pod, PREEMPTED, f"by {by}, for want of cards on node {where}")


def _waits(pod: Pod | None, uid: str) -> bool:
    """Return whether the pod of a uid is still to be scheduled."""
    return (
        pod is not None
        and pod.metadata.uid == uid
        and not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
    )
