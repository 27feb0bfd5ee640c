"""Pod recheck queue: namespaces whose pods are listed again, as their roots may have changed.

A root ends before its pods, a ReplicaSet loses its Deployment, or an owner cannot be read. Then one
list of the namespace shows from which roots its pods draw now. The list is delayed, because in most
cases the pods are deleted soon after their root.
"""

import asyncio
from itertools import islice
from typing import Final

import structlog

from ledger.core.model.qualified_names import local_name
from ledger.kube.api.cluster_errors import ClusterError
from webhook.settlement.charge_settlement_session import SettlementSession
from webhook.settlement.pod_reconciler import PodReconciler

DELAY_SECONDS: Final = 2.0
"""Time from the cause to the list of a namespace."""

RETRY_SECONDS: Final = 10.0
"""Pause after a list, or the reading of an owner, failed."""

NAMESPACES_MAX: Final = 8
"""Namespaces that are listed in one round."""

_log: Final = structlog.get_logger("webhook")


class RecheckQueue:
    """The namespaces to list, each once, with the loop times at which they are due."""

    def __init__(self, session: SettlementSession, pods: PodReconciler) -> None:
        self._session = session
        self._pods = pods
        self._due: dict[str, float] = {}

    def add(self, namespace: str) -> None:
        """Have the pods of a qualified namespace rechecked after `DELAY_SECONDS`."""
        self._due.setdefault(namespace, asyncio.get_running_loop().time() + DELAY_SECONDS)

    async def settle(self) -> None:
        """Recheck the namespaces that are due."""
        now = asyncio.get_running_loop().time()
        for namespace in self._pods.take_unresolved():
            self._due.setdefault(namespace, now + RETRY_SECONDS)
        due = (name for name, when in self._due.items() if when <= now)
        for namespace in list(islice(due, NAMESPACES_MAX)):
            del self._due[namespace]
            await self._recheck(namespace)

    async def _recheck(self, namespace: str) -> None:
        try:
            listed = await self._session.cluster.list_pods(local_name(namespace))
        except ClusterError as error:
            self._due[namespace] = asyncio.get_running_loop().time() + RETRY_SECONDS
            _log.warning("pods_not_looked_at", namespace=namespace, reason=str(error))
            return
        await self._pods.recheck(listed.objects)
