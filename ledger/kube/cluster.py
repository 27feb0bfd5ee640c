"""The real cluster behind `ledger.kube.port.Cluster`: an API server reached over HTTPS."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final
from urllib.parse import quote

import msgspec

from ledger.kube import watching
from ledger.kube.client import Client
from ledger.kube.errors import Malformed
from ledger.kube.objects import Bookmark, Pod, PodList, ResourceQuota, ResourceQuotaList
from ledger.kube.port import Change, Listed
from ledger.kube.watching import Backoff, Source

_PODS: Final = Source("/api/v1/pods", Pod, PodList)
_QUOTAS: Final = Source("/api/v1/resourcequotas", ResourceQuota, ResourceQuotaList)
_NAMESPACE: Final = "/api/v1/namespaces/"
_metadata: Final = msgspec.json.Decoder(Bookmark)


class KubernetesCluster:
    """A cluster through its API server. Errors and deadlines are those of the client."""

    def __init__(
        self, client: Client, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._client = client
        self._sleep = sleep

    async def kube_system_uid(self) -> str:
        """Return the uid of `kube-system`, which stands for the cluster. Raises ClusterError."""
        body = await self._client.get(_NAMESPACE + "kube-system")
        try:
            uid = _metadata.decode(body).metadata.uid
        except msgspec.MsgspecError as error:
            raise Malformed(f"namespace kube-system does not decode: {error}") from error
        if not uid:
            raise Malformed("namespace kube-system has no uid")
        return uid

    async def list_pods(self, namespace: str) -> Listed[Pod]:
        """List a namespace's pods as of now, linearizably. Raises ClusterError."""
        path = f"{_NAMESPACE}{quote(namespace, safe='')}/pods"
        return await watching.list_all(self._client, _PODS, path)

    def watch_pods(self) -> AsyncGenerator[Change[Pod], None]:
        """Tell all pods and their changes, without end."""
        return watching.watch(self._client, _PODS, Backoff(self._sleep))

    def watch_quotas(self) -> AsyncGenerator[Change[ResourceQuota], None]:
        """Tell all ResourceQuotas and their changes, without end."""
        return watching.watch(self._client, _QUOTAS, Backoff(self._sleep))
