"""Telling: events of pods. Without a cluster, nothing but the log of the agent has them."""

from typing import Final, Protocol

import structlog

from ledger.kube.api.cluster_ports import PodEvent
from ledger.kube.api.errors import ClusterError
from vgpu_native.plugin.allocation.allocation_store import ContainerOwner

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class PodWrites(Protocol):
    """What of a cluster reports need; every call has a deadline and may raise ClusterError."""

    async def create_event(self, event: PodEvent) -> None:
        """Tell something of a pod."""
        ...

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Ask for the eviction of the pod that has this uid."""
        ...


async def report_event(
    cluster: PodWrites | None, pod: ContainerOwner, reason: str, note: str, action: str
) -> bool:
    """Write a warning about a pod; return whether nothing is left to be tried again."""
    if cluster is None:
        return True
    event = PodEvent(
        namespace=pod.namespace,
        name=pod.pod,
        uid=pod.uid,
        reason=reason,
        note=note,
        action=action,
        warning=True,
    )
    try:
        await cluster.create_event(event)
    except (ClusterError, TimeoutError) as error:
        _log.warning("event_not_written", reason=str(error))
        return False
    return True
