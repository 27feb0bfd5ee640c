"""Looking again: pods that have not changed themselves, but may count elsewhere now.

A root ends before its pods, a ReplicaSet loses its Deployment, or an owner could not be read: then
one list of the namespace says where its pods belong. It waits a moment, because mostly the pods go
as well.
"""

import asyncio
import logging
from itertools import islice
from typing import Final

from ledger.core.model.qualified_names import local_name
from ledger.kube.api.errors import ClusterError
from webhook.settlement.pod_reconciler import PodReconciler
from webhook.settlement.settlement_session import SettlementSession

DELAY_SECONDS: Final = 2.0
"""How long after the cause a namespace is listed."""

AGAIN_SECONDS: Final = 10.0
"""How long after a list, or the reading of an owner, that failed it is tried again."""

NAMESPACES_MAX: Final = 8
"""Namespaces that are listed in one round."""

_log: Final = logging.getLogger(__name__)


class RecheckQueue:
    """The namespaces to look at; as many as there are at most, and each once."""

    def __init__(
        self, tenure: SettlementSession, pods: PodReconciler, delay: float = DELAY_SECONDS
    ) -> None:
        """List a namespace `delay` seconds after it was asked for."""
        self._tenure = tenure
        self._pods = pods
        self._delay = delay
        self._due: dict[str, float] = {}

    def ask(self, namespace: str) -> None:
        """Have the pods of a qualified namespace looked at."""
        self._due.setdefault(namespace, asyncio.get_running_loop().time() + self._delay)

    async def settle(self) -> None:
        """Look at the namespaces whose time has come."""
        now = asyncio.get_running_loop().time()
        for namespace in self._pods.astray():
            self._due.setdefault(namespace, now + AGAIN_SECONDS)
        due = (name for name, when in self._due.items() if when <= now)
        for namespace in list(islice(due, NAMESPACES_MAX)):
            del self._due[namespace]
            await self._look(namespace)

    async def _look(self, namespace: str) -> None:
        try:
            listed = await self._tenure.cluster.list_pods(local_name(namespace))
        except ClusterError as error:
            self._due[namespace] = asyncio.get_running_loop().time() + AGAIN_SECONDS
            extra = {"namespace": namespace, "reason": str(error)}
            _log.warning("pods_not_looked_at", extra=extra)
            return
        await self._pods.look_again(listed.objects)
