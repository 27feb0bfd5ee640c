"""HAMi's device plugin, played: it hands out what is placed on its nodes, and frees their locks."""

import asyncio
from typing import Final

from tests.e2e.harness.authorization import grant
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.scheduling.support.nodes import LOCK, NODES

IDENTITY: Final = "system:serviceaccount:kube-system:hami-device-plugin"
PHASE: Final = "hami.io/bind-phase"
ALLOCATING: Final = "allocating"
SUCCESS: Final = "success"
PAUSE_SECONDS: Final = 0.1


async def admitted(cluster: Cluster) -> "Plugin":
    """Give the plugin's identity its rights, and return it."""
    rules = [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list", "patch"]}]
    await grant(cluster, IDENTITY, rules)
    return Plugin(cluster.as_user(IDENTITY))


class Plugin:
    """Simulates the plugins of all nodes until `stop`.

    `most` is the largest number of pods that were seen waiting for one node's plugin at once; the
    real one cannot distinguish two of them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.most = 0
        self.allocated = 0
        self._cluster = cluster
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Look for pods that are being allocated, one look after the other."""
        while not self._stopping.is_set():
            by_node: dict[str, list[Manifest]] = {}
            for pod in await self._cluster.items("/api/v1/pods"):
                if _waits(pod):
                    by_node.setdefault(pod["spec"]["nodeName"], []).append(pod)
            self.most = max([self.most, *map(len, by_node.values())])
            for node, pods in by_node.items():
                await self._allocate(node, pods)
            try:
                await asyncio.wait_for(self._stopping.wait(), PAUSE_SECONDS)
            except TimeoutError:
                continue

    def stop(self) -> None:
        """Let it finish what it does."""
        self._stopping.set()

    async def _allocate(self, node: str, pods: list[Manifest]) -> None:
        for pod in pods:
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            answer = await self._cluster.patch(path, _annotate(PHASE, SUCCESS))
            self.allocated += answer.status == 200
        await self._cluster.patch(f"{NODES}/{node}", _annotate(LOCK, None))


def _waits(pod: Manifest) -> bool:
    phase = pod["metadata"].get("annotations", {}).get(PHASE)
    return phase == ALLOCATING and "nodeName" in pod["spec"]


def _annotate(key: str, value: str | None) -> Manifest:
    return {"metadata": {"annotations": {key: value}}}
