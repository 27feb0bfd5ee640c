"""Bypass reports: logs, events and evictions of pods that use more of a card than they report.

Each bypass is logged and recorded as an event of the pod, once. By policy the pod is evicted when
the bypass lasts. The eviction goes through the eviction API: disruption budgets hold, and the pod
has its grace period.
"""

from collections.abc import Iterable
from typing import Final, Literal

import structlog

from ledger.kube.api.cluster_errors import ClusterError, NotFound
from vgpu_native.agent.agent_pod_events import PodWrites, report_event
from vgpu_native.agent.bypass_detection import Bypass
from vgpu_native.plugin.allocation.allocation_store import ContainerOwner
from vgpu_native.shared.limits_page import MEBIBYTE

BypassPolicy = Literal["report", "evict"]

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class BypassReporter:
    """Reports each bypass once, and evicts by policy."""

    def __init__(self, cluster: PodWrites | None, policy: BypassPolicy) -> None:
        """Without a cluster, bypasses are only logged."""
        self._cluster, self._policy = cluster, policy
        self._reported: set[tuple[str, str]] = set()
        self._evicted: set[str] = set()

    async def report(self, drifts: Iterable[Bypass], owners: Iterable[ContainerOwner]) -> None:
        """Report each lasting bypass of these; by policy, evict its pod."""
        pods = {owner.uid: owner for owner in owners}
        lasting = [bypass for bypass in drifts if bypass.is_reported and bypass.uid in pods]
        here = {(bypass.uid, bypass.card) for bypass in lasting}
        self._reported &= here
        self._evicted &= {uid for uid, _ in here}
        for bypass in lasting:
            await self._report(bypass, pods[bypass.uid])
            if self._policy == "evict" and bypass.is_evictable:
                await self._evict(bypass, pods[bypass.uid])

    async def _report(self, drift: Bypass, pod: ContainerOwner) -> None:
        where = (drift.uid, drift.card)
        if where in self._reported:
            return
        self._reported.add(where)
        note = (
            f"The pod uses {drift.seen // MEBIBYTE} MiB of card {drift.card}, but its containers"
            f" account for {drift.reported // MEBIBYTE} MiB: something allocates past libvgpu.so"
        )
        _log.warning(
            "memory_not_accounted_for",
            namespace=pod.namespace,
            pod=pod.pod,
            card=drift.card,
            said=drift.reported,
            seen=drift.seen,
        )
        await report_event(self._cluster, pod, "GPUMemoryNotAccountedFor", note, "Account")

    async def _evict(self, drift: Bypass, pod: ContainerOwner) -> None:
        if pod.uid in self._evicted or self._cluster is None:
            return
        try:
            await self._cluster.evict(pod.namespace, pod.pod, pod.uid)
        except NotFound:
            self._evicted.add(pod.uid)
            return
        except (ClusterError, TimeoutError) as error:
            # Tried again at the next reading.
            _log.warning("not_evicted", pod=f"{pod.namespace}/{pod.pod}", reason=str(error))
            return
        self._evicted.add(pod.uid)
        _log.warning("evicted", namespace=pod.namespace, pod=pod.pod, excess=drift.excess)
        note = f"Evicted for {drift.excess // MEBIBYTE} MiB of card {drift.card} past its limits"
        await report_event(self._cluster, pod, "EvictedForGPUMemory", note, "Evict")
