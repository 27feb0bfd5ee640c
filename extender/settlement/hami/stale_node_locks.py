"""Stale node locks: HAMi's lock on a node is removed when its pod is gone or on another node.

HAMi's device plugin clears the lock when it has handed the pod its cards. A pod that is deleted
before that, or whose binder crashed, leaves its lock, and no pod can be bound to the node until the
lock expires.
"""

from typing import Final

import structlog

from extender.settlement.card_reconciler_context import CardReconcilerContext
from extender.settlement.node_card_health import NodeReading
from extender.settlement.node_informer import NodeInformer
from ledger.core.evolve.envelope_charges import PODS
from ledger.core.model.cards import Stage
from ledger.core.model.qualified_names import local_name
from ledger.kube.api.cluster_errors import ClusterError, ClusterUnavailable
from ledger.kube.hami import annotation_keys, node_lock_annotation
from ledger.kube.hami.node_lock_annotation import NodeLock

LOOK_SECONDS: Final = 10.0
"""How often locks are checked."""

_log: Final = structlog.get_logger("extender")


class NodeLockCleaner:
    """Clears the unneeded locks of one cluster's nodes."""

    def __init__(self, context: CardReconcilerContext, nodes: NodeInformer) -> None:
        self._context = context
        self._nodes = nodes

    async def settle(self) -> None:
        """Check every lock, except those of placements that are being handed out."""
        for reading in [node for node in self._nodes.known.values() if node.lock]:
            lock = node_lock_annotation.read(reading.lock)
            if lock is None or not lock.pod or self._is_needed(reading, lock):
                continue
            try:
                if await self._is_over(reading, lock):
                    await self._clear(reading)
            except ClusterError as error:
                _log.warning("node_lock_not_settled", node=reading.name, reason=str(error))
                if isinstance(error, ClusterUnavailable):
                    return  # the other reads would fail, too

    async def release(self, node: str, namespace: str, name: str) -> None:
        """Clear the lock of a qualified node if it is for this pod; later, if that fails."""
        reading = self._nodes.known.get(local_name(node))
        lock = node_lock_annotation.read(reading.lock) if reading is not None else None
        if reading is None or lock is None or not lock.is_of(namespace, name):
            return
        try:
            await self._clear(reading)
        except ClusterError as error:
            _log.warning("node_lock_not_settled", node=node, reason=str(error))

    def _is_needed(self, reading: NodeReading, lock: NodeLock) -> bool:
        """Return whether the ledger has the pod of a lock as waiting for its cards."""
        namespace = self._context.qualified(lock.namespace)
        placed = self._context.placement(namespace, PODS + lock.pod)
        if placed is None or placed.node != self._context.qualified(reading.name):
            return False
        return placed.stage < Stage.ALLOCATED

    async def _is_over(self, reading: NodeReading, lock: NodeLock) -> bool:
        """Return whether the pod of a lock is gone, ended, or on another node.

        Raises ClusterError.
        """
        pod = await self._context.cluster.get_pod(lock.namespace, lock.pod)
        if pod is None or pod.status.has_ended():
            return True
        return pod.spec.node_name not in ("", reading.name)

    async def _clear(self, reading: NodeReading) -> None:
        """Clear the lock unless the node has changed meanwhile. Raises ClusterError."""
        changes = {annotation_keys.LOCK: None}
        await self._context.cluster.patch_node_annotations(
            reading.name, changes, str(reading.version)
        )
        self._context.count("node_locks_cleared_total")
        _log.info("node_lock_cleared", node=reading.name, lock=reading.lock)
