"""Nodes: what every node of the cluster said last, in every replica.

The active replica tells the ledger of it. All of them need to know how well cards are linked, which
is no fact of the ledger, so that each would choose the same cards.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

import structlog

from extender.settlement import node_reader
from extender.settlement.node_reader import NodeReading, NodeRules
from ledger.kube.api import ports
from ledger.kube.api.objects import ApiNode
from ledger.kube.api.ports import Change, Changed, Listed
from ledger.kube.hami.link_scores import PairScores
from ledger.kube.watch.failed_objects import FailedObjects
from ledger.kube.watch.informers import Informers
from ledger.tasks.periodic import CooperativeYield

WATCHED: Final = "nodes"
"""What the watch is called in readiness."""

RECOUNT_SECONDS: Final = 600.0
"""How often all nodes are listed."""

TOLD_MAX: Final = 3
"""Nodes that a warning names, of all whose cards cannot be read."""

SetScores = Callable[[str, PairScores], None]
"""Takes how well the cards of a node are linked."""

OnNode = Callable[[str], None]
"""Hears the name of a node that said something new, or is gone."""

_log: Final = structlog.get_logger("extender")


def _ignore_node(_: str) -> None:
    """Hear of a node and do nothing."""


def _ignore_scores(_: str, __: PairScores) -> None:
    """Need no scores."""


class NodeInformer:
    """Follows the nodes of a cluster.

    `known` has what they said by name, as of the resourceVersion `version` or later; it holds all
    of them once `listed` is set. `set_scores` is told the scores of cards as they are announced.
    """

    def __init__(
        self,
        cluster: ports.NodeWatches,
        rules: NodeRules,
        *,
        recount_seconds: float = RECOUNT_SECONDS,
        failures: FailedObjects | None = None,
    ) -> None:
        """Know nothing; `run` follows, and notes in `failures` what cannot be taken in."""
        self.known: dict[str, NodeReading] = {}
        self.version = 0
        self.listed = asyncio.Event()
        self.set_scores: SetScores = _ignore_scores
        self._cluster, self._rules = cluster, rules
        self._watches = Informers(recount_seconds, failures)
        self._watches.expect(WATCHED)
        self._hear: OnNode = _ignore_node

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._watches.follow(WATCHED, self._cluster.watch_nodes, self._take)

    @contextmanager
    def heard_by(self, hear: OnNode) -> Iterator[None]:
        """Tell `hear` of every node in the block that says something new; one hears at a time."""
        self._hear = hear
        try:
            yield
        finally:
            self._hear = _ignore_node

    @property
    def not_understood(self) -> int:
        """How many nodes announce cards in a way that cannot be read."""
        return sum(1 for one in self.known.values() if one.announced.problem)

    def warnings(self) -> list[str]:
        """Return what keeps the cards of nodes from being known."""
        found = [*self._watches.problems(), *self._watches.warnings()]
        puzzling = (one for one in self.known.values() if one.announced.problem)
        found += [f"node {one.name}: {one.announced.problem}" for one in islice(puzzling, TOLD_MAX)]
        more = self.not_understood - TOLD_MAX
        return [*found, f"and {more} more nodes cannot be read"] if more > 0 else found

    async def _take(self, change: Change[ApiNode]) -> None:
        if isinstance(change, Listed):
            await self._take_all(change)
        elif isinstance(change, Changed):
            self.version = change.version
            if change.deleted:
                self._forget(change.object.metadata.name)
            else:
                self._note(change.object)

    async def _take_all(self, listed: Listed[ApiNode]) -> None:
        stride = CooperativeYield()
        present = {node.metadata.name for node in listed.objects}
        for name in [name for name in self.known if name not in present]:
            self._forget(name)
        for node in listed.objects:
            await stride.step()
            with self._watches.failures.taking(WATCHED, node.metadata.name):
                self._note(node)
        self.version = listed.version
        self.listed.set()

    def _note(self, node: ApiNode) -> None:
        reading = node_reader.read(node, self._rules)
        before = self.known.get(reading.name)
        self.known[reading.name] = reading
        if before is None or before.announced.scores != reading.announced.scores:
            self.set_scores(reading.name, reading.announced.scores)
        _say(before, reading)
        self._hear(reading.name)

    def _forget(self, name: str) -> None:
        if self.known.pop(name, None) is not None:
            self.set_scores(name, {})
        self._hear(name)


def _say(before: NodeReading | None, reading: NodeReading) -> None:
    """Log what is wrong with an announcement, once."""
    told = before.announced if before is not None else None
    problem, warning = reading.announced.problem, reading.announced.warning
    if problem and (told is None or told.problem != problem):
        _log.error("node_not_understood", node=reading.name, reason=problem)
    if warning and (told is None or told.warning != warning):
        _log.warning("node_partly_understood", node=reading.name, reason=warning)
