"""The node informer: the latest announcement of every node, in every replica.

The active replica registers the announced cards. Every replica needs the link scores of cards,
which are not in the ledger, so that each would choose the same cards.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

import structlog

from extender.settlement import node_card_health
from extender.settlement.node_card_health import NodeReading, NodeRules
from ledger.kube.api import cluster_ports
from ledger.kube.api.cluster_ports import Change, Changed, Listed
from ledger.kube.api.objects import ApiNode
from ledger.kube.hami.link_scores import PairScores
from ledger.kube.watch.failed_objects import FailedObjects
from ledger.kube.watch.informers import Informers
from ledger.tasks.periodic import CooperativeYield

WATCHED: Final = "nodes"
"""The name of the watch in readiness checks."""

RECOUNT_SECONDS: Final = 600.0
"""How often all nodes are listed."""

NAMED_MAX: Final = 3
"""Unreadable nodes that a warning names."""

SetScores = Callable[[str, PairScores], None]
"""Receives the link scores of the cards of a node."""

OnNode = Callable[[str], None]
"""Receives the name of a node that has changed or is gone."""

_log: Final = structlog.get_logger("extender")


def _ignore_node(_: str) -> None:
    """Ignore the node."""


def _ignore_scores(_: str, __: PairScores) -> None:
    """Ignore the scores."""


class NodeInformer:
    """Follows the nodes of a cluster.

    `known` has the readings of nodes by name, at the resourceVersion `version` or later, and of all
    nodes once `listed` is set. `set_scores` receives the link scores of announced cards.
    """

    def __init__(
        self,
        cluster: cluster_ports.NodeWatches,
        rules: NodeRules,
        *,
        recount_seconds: float = RECOUNT_SECONDS,
        failures: FailedObjects | None = None,
    ) -> None:
        """Start without nodes; `run` follows them, and adds objects that fail to `failures`."""
        self.known: dict[str, NodeReading] = {}
        self.version = 0
        self.listed = asyncio.Event()
        self.set_scores: SetScores = _ignore_scores
        self._cluster, self._rules = cluster, rules
        self._watches = Informers(recount_seconds, failures)
        self._watches.expect(WATCHED)
        self._on_node: OnNode = _ignore_node

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._watches.follow(WATCHED, self._cluster.watch_nodes, self._take)

    @contextmanager
    def listened_to_by(self, on_node: OnNode) -> Iterator[None]:
        """Pass every changed node to `on_node` within the block; one listener at a time."""
        self._on_node = on_node
        try:
            yield
        finally:
            self._on_node = _ignore_node

    @property
    def not_understood(self) -> int:
        """The number of nodes whose announcement cannot be read."""
        return sum(1 for reading in self.known.values() if reading.announced.problem)

    def warnings(self) -> list[str]:
        """Return the problems because of which the cards of nodes are unknown."""
        problems = [*self._watches.problems(), *self._watches.warnings()]
        unreadable = (reading for reading in self.known.values() if reading.announced.problem)
        problems += [
            f"node {reading.name}: {reading.announced.problem}"
            for reading in islice(unreadable, NAMED_MAX)
        ]
        more = self.not_understood - NAMED_MAX
        return [*problems, f"and {more} more nodes cannot be read"] if more > 0 else problems

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
        reading = node_card_health.read(node, self._rules)
        before = self.known.get(reading.name)
        self.known[reading.name] = reading
        if before is None or before.announced.scores != reading.announced.scores:
            self.set_scores(reading.name, reading.announced.scores)
        _log_problems(before, reading)
        self._on_node(reading.name)

    def _forget(self, name: str) -> None:
        if self.known.pop(name, None) is not None:
            self.set_scores(name, {})
        self._on_node(name)


def _log_problems(before: NodeReading | None, reading: NodeReading) -> None:
    """Log the problems of an announcement once."""
    last = before.announced if before is not None else None
    problem, warning = reading.announced.problem, reading.announced.warning
    if problem and (last is None or last.problem != problem):
        _log.error("node_not_understood", node=reading.name, reason=problem)
    if warning and (last is None or last.warning != warning):
        _log.warning("node_partly_understood", node=reading.name, reason=warning)
