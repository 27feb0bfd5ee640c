"""Unbound placements: their cards are given back once their Binding is proved absent.

An extender may crash between the ledger and the API server, or get no answer. A placement will
never be bound if it is older than any Binding can take and a linearizable read, begun after that,
returns the pod unbound. The age alone proves nothing, nor does a failed read. Ages are on this
replica's own clock. They start from zero when this replica becomes active.
"""

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import structlog

from extender.settlement.card_reconciler_context import SETTLED, CardReconcilerContext
from extender.settlement.hami.stale_node_locks import NodeLockCleaner
from ledger.core.evolve.envelope_charges import PODS
from ledger.core.model.cards import Placement, Stage
from ledger.core.model.commands import Advance, Unplace
from ledger.core.model.events import AnyEvent, Cause, Placed
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.objects import Pod
from ledger.tasks.backoff import Backoff
from ledger.tasks.periodic import CooperativeYield

RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 30.0
"""Pauses after a read that failed; they double."""

READS_MAX: Final = 128
"""Pods that are read in one round, the oldest placements first."""

_log: Final = structlog.get_logger("extender")


class _Subject(NamedTuple):
    namespace: str
    key: str
    uid: str


class UnboundPlacements:
    """Settles the unbound placements of one cluster."""

    def __init__(self, context: CardReconcilerContext, locks: NodeLockCleaner) -> None:
        self._context = context
        self._locks = locks
        self._since: dict[_Subject, float] = {}
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)

    def __len__(self) -> int:
        """Return the number of unbound placements."""
        return len(self._since)

    async def find(self) -> None:
        """Start the age of every placement that has none yet."""
        stride, clock = CooperativeYield(), asyncio.get_running_loop().time
        state = self._context.view.state
        for node in [name for name in state.residents if self._context.owns(name)]:
            for namespace, key in list(state.residents.get(node, ())):
                await stride.step()
                placed = self._context.placement(namespace, key)
                if placed is not None and _is_open(placed):
                    self._since.setdefault(_Subject(namespace, key, placed.uid), clock())

    def follow(self, event: AnyEvent, now: float) -> None:
        """Count the age of a new placement from `now` on, in seconds of the loop's clock."""
        if isinstance(event, Placed) and event.cause != Cause.SEEN:
            subject = _Subject(event.namespace, event.key, event.uid)
            self._since.pop(subject, None)
            self._since[subject] = now

    async def settle(self) -> None:
        """Read the pods of the placements that are old enough."""
        if not self._backoff.is_over():
            return
        for subject in list(islice(self._old(), READS_MAX)):
            try:
                await self._settle(subject)
            except ClusterError as error:
                self._backoff.failed()
                _log.warning("binding_not_settled", reason=str(error))
                return
        self._backoff.reset()

    def _old(self) -> Iterator[_Subject]:
        """Yield the placements older than the bound; forget those that are settled."""
        now = asyncio.get_running_loop().time()
        for subject, since in list(self._since.items()):
            if now - since < self._context.settings.settle_seconds:
                return
            if self._placement(subject) is None:
                del self._since[subject]
            else:
                yield subject

    def _placement(self, subject: _Subject) -> Placement | None:
        """Return the placement of a pod if it is still unbound."""
        placed = self._context.placement(subject.namespace, subject.key)
        if placed is None or placed.uid != subject.uid or not _is_open(placed):
            return None
        return placed

    async def _settle(self, subject: _Subject) -> None:
        """Read a pod and send the command that follows. Raises ClusterError."""
        namespace, name = local_name(subject.namespace), subject.key.removeprefix(PODS)
        since = self._since[subject]
        pod = await self._context.cluster.get_pod(namespace, name)
        placed = self._placement(subject)
        if placed is None or self._since.get(subject) != since:
            return  # it went on, or was placed again, while the pod was read
        del self._since[subject]
        if pod is not None and _is_at(pod, subject.uid, local_name(placed.node)):
            bound = Advance(*subject, Stage.BOUND, actor=SETTLED, node=placed.node)
            await self._context.commands.send(bound)
            return
        self._context.count("placements_undone_total")
        _log.info("placement_undone", namespace=namespace, key=subject.key)
        undo = Unplace(*subject, placed.node, Cause.UNBOUND, SETTLED, version=placed.version)
        await self._context.commands.send(undo)
        await self._locks.release(placed.node, namespace, name)


def _is_open(placed: Placement) -> bool:
    return bool(placed.node) and placed.stage == Stage.PROPOSED


def _is_at(pod: Pod, uid: str, node: str) -> bool:
    """Return whether the pod of a uid is bound to a node, given by its local name."""
    return (pod.metadata.uid, pod.spec.node_name) == (uid, node)
