"""Agent pod events: the events that the agent records on pods. Without a cluster it only logs."""

from typing import Final, Protocol

import structlog

from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import PodEvent
from vgpu_native.plugin.allocation.allocation_store import ContainerOwner

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class PodWrites(Protocol):
    """The writes of a cluster that reports need; each has a deadline and may raise ClusterError."""

    async def create_event(self, event: PodEvent) -> None:
        """Write an event of a pod."""
        ...

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Request the eviction of the pod that has this uid."""
        ...


async def report_event(
    cluster: PodWrites | None, pod: ContainerOwner, reason: str, note: str, action: str
) -> bool:
    """Write a warning event of a pod; return False if the write is to be tried again."""
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
