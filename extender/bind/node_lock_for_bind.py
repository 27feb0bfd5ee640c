"""Node lock for a bind: HAMi's lock, held while its device plugin hands out cards to one pod.

The ledger already allows one placement at a time on such a node. The lock is for HAMi's own parts:
its plugin removes the lock when the pod has its cards, and its scheduler waits for that. Another
bind on the node waits in `place_or_choose_again.py`.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from ledger.kube.api.cluster_errors import VersionConflict
from ledger.kube.api.cluster_ports import BindingApi
from ledger.kube.api.objects import ApiNode, Pod
from ledger.kube.hami import annotation_keys, node_lock_annotation
from ledger.kube.hami.node_lock_annotation import NodeLock


class HamiNodeLock:
    """Locks nodes for pods; `now` is Unix time in seconds."""

    def __init__(self, cluster: BindingApi, now: Callable[[], float]) -> None:
        """Write to a cluster."""
        self._cluster = cluster
        self._now = now

    async def lock(self, pod: Pod, name: str) -> str:
        """Lock a node for a pod; return why that failed, empty when the pod holds the lock now.

        Raises ClusterError; then the holder is unknown.
        """
        node = await self._cluster.get_node(name)
        if node is None:
            return f"node {name} does not exist"
        held = node_lock_annotation.read(
            (node.metadata.annotations or {}).get(annotation_keys.LOCK)
        )
        if held is not None and await self._holds(held, pod):
            return f"node {name} is locked for {held.namespace}/{held.pod}"
        try:
            await self._take(node, pod)
        except VersionConflict:
            return f"node {name} has changed meanwhile"
        return ""

    async def unlock(self, pod: Pod, name: str) -> None:
        """Remove a pod's lock. Raises ClusterError; then the lock expires or is taken over."""
        node = await self._cluster.get_node(name)
        if node is None:
            return
        held = node_lock_annotation.read(
            (node.metadata.annotations or {}).get(annotation_keys.LOCK)
        )
        if held is None or not held.is_of(pod.metadata.namespace, pod.metadata.name):
            return
        version = node.metadata.resource_version
        await self._cluster.patch_node_annotations(name, {annotation_keys.LOCK: None}, version)

    async def _holds(self, held: NodeLock, pod: Pod) -> bool:
        """Return whether another pod, which still exists, holds a lock that has not expired.

        A lock of an old HAMi release names no pod, so only time ends it.
        """
        meta = pod.metadata
        if held.is_of(meta.namespace, meta.name) or held.expired(self._time()):
            return False
        if not held.pod:
            return True
        return await self._cluster.get_pod(held.namespace, held.pod) is not None

    async def _take(self, node: ApiNode, pod: Pod) -> None:
        meta = pod.metadata
        text = node_lock_annotation.write(meta.namespace, meta.name, self._time())
        version = node.metadata.resource_version
        await self._cluster.patch_node_annotations(
            node.metadata.name, {annotation_keys.LOCK: text}, version
        )

    def _time(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)
