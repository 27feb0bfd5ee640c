"""How one replica sees the cluster: late, twice, after a gap, or not at all.

Changes still come in order and every one that is not lost with the history comes at least once,
as a real watch promises; lists are linearizable, but slow, or fail.
"""

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Final

from gpuledger.simulation.apiserver import ApiServer, Collection, T
from ledger.kube.errors import Unavailable
from ledger.kube.objects import Pod, ResourceQuota
from ledger.kube.port import Change, Interrupted, Listed, Reached

SYSTEM_UID: Final = "kube-system-uid"
HOP_SECONDS_MAX: Final = 0.01
REPEATED_MAX: Final = 3
AGAIN_SECONDS: Final = 0.5


class WatchedCluster:
    """Implements `ledger.kube.port.Cluster` over the model. The knobs are turned by the script."""

    def __init__(self, server: ApiServer, source: random.Random) -> None:
        self.trouble = 0.0
        self.list_seconds = 0.0
        self.lists_failing = 0.0
        self._server = server
        self._source = source
        self._stalled_until = 0.0
        self._expirations = 0

    def stall(self, seconds: float, *, expired: bool) -> None:
        """Let the watches stand still; with `expired` their history is gone afterwards."""
        self._stalled_until = asyncio.get_running_loop().time() + seconds
        self._expirations += expired

    def calm(self) -> None:
        """Let everything work from now on."""
        self.trouble = self.list_seconds = self.lists_failing = self._stalled_until = 0.0

    async def kube_system_uid(self) -> str:
        """Return the cluster's identity. Raises Unavailable."""
        await self._hop()
        if self._happens(self.trouble):
            raise Unavailable("the API server does not answer")
        return SYSTEM_UID

    async def list_pods(self, namespace: str) -> Listed[Pod]:
        """List a namespace as of some moment during the call. Raises Unavailable."""
        await asyncio.sleep(self._source.random() * self.list_seconds)
        pods = [pod for (space, _), pod in self._server.pods.objects.items() if space == namespace]
        version = self._server.versions.version
        await asyncio.sleep(self._source.random() * self.list_seconds)
        if self._happens(self.lists_failing):
            raise Unavailable("the list timed out")
        return Listed(version, pods)

    def watch_pods(self) -> AsyncGenerator[Change[Pod], None]:
        """Tell all pods and their changes."""
        return self._watch(self._server.pods)

    def watch_quotas(self) -> AsyncGenerator[Change[ResourceQuota], None]:
        """Tell all ResourceQuotas and their changes."""
        return self._watch(self._server.quotas)

    async def _watch(self, collection: Collection[T]) -> AsyncGenerator[Change[T], None]:
        while True:
            listed_at = told = len(collection.history)
            listed = Listed(self._server.versions.version, list(collection.objects.values()))
            expirations = self._expirations
            await self._delay()
            yield listed
            while expirations == self._expirations:
                if told == len(collection.history):
                    await self._server.versions.news()
                    continue
                await self._delay()
                if expirations != self._expirations:
                    break
                if self._happens(self.trouble):
                    yield Interrupted("the connection broke")
                    await asyncio.sleep(AGAIN_SECONDS * self._source.random())
                    told = max(listed_at, told - self._source.randint(0, REPEATED_MAX))
                change = collection.history[told]
                told += 1
                yield change
                if self._happens(self.trouble):
                    yield Reached(change.version)
            yield Interrupted("the history is gone")
            await self._delay()

    async def _delay(self) -> None:
        await self._hop()
        now = asyncio.get_running_loop().time()
        if now < self._stalled_until:
            await asyncio.sleep(self._stalled_until - now)

    async def _hop(self) -> None:
        await asyncio.sleep(self._source.random() * HOP_SECONDS_MAX)

    def _happens(self, share: float) -> bool:
        return share > 0 and self._source.random() < share
