"""Misallocation reports: events and evictions of pods that received the cards of another pod.

The kubelet keeps the response to `Allocate` as long as the pod lives, and retries the start with
it. So the pod never starts. The agent records one event of the pod. By policy it also evicts the
pod, so that the pod's controller creates another.
"""

from collections.abc import Iterable
from typing import Final, Literal

import structlog

from ledger.kube.api.cluster_errors import ClusterError, NotFound
from vgpu_native.agent.agent_pod_events import PodWrites, report_event
from vgpu_native.plugin.allocation.allocation_store import Allocation, ContainerOwner

MisallocationPolicy = Literal["report", "evict"]

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class MisallocationReporter:
    """Reports each misallocation once, and evicts by policy; failed writes are tried again."""

    def __init__(self, cluster: PodWrites | None, policy: MisallocationPolicy) -> None:
        """Without a cluster, misallocations are only logged."""
        self._cluster, self._policy = cluster, policy
        self._logged: set[str] = set()
        self._reported: set[str] = set()
        self._evicted: set[str] = set()

    async def report(self, allocations: Iterable[Allocation]) -> None:
        """Report, and by policy evict, the pods of misallocations among these allocations."""
        wrong = [
            (allocation, allocation.owner)
            for allocation in allocations
            if allocation.problem and allocation.owner
        ]
        self._forget_all_but({allocation.token for allocation, _ in wrong})
        for allocation, pod in wrong:
            # The ledger has no name for a pod without a placement: the pod is gone.
            if pod.pod:
                await self._report(allocation, pod)
                if self._policy == "evict":
                    await self._evict(allocation, pod)

    def _forget_all_but(self, tokens: set[str]) -> None:
        self._logged &= tokens
        self._reported &= tokens
        self._evicted &= tokens

    async def _report(self, allocation: Allocation, pod: ContainerOwner) -> None:
        if allocation.token not in self._logged:
            self._logged.add(allocation.token)
            _log.warning(
                "wrong_cards_answered",
                namespace=pod.namespace,
                pod=pod.pod,
                reason=allocation.problem,
            )
        if allocation.token not in self._reported and await report_event(
            self._cluster, pod, "WrongGPUsAnswered", allocation.problem, "Start"
        ):
            self._reported.add(allocation.token)

    async def _evict(self, allocation: Allocation, pod: ContainerOwner) -> None:
        if allocation.token in self._evicted or self._cluster is None:
            return
        try:
            await self._cluster.evict(pod.namespace, pod.pod, pod.uid)
        except NotFound:
            self._evicted.add(allocation.token)
            return
        except (ClusterError, TimeoutError) as error:
            _log.warning("not_evicted", pod=f"{pod.namespace}/{pod.pod}", reason=str(error))
            return
        self._evicted.add(allocation.token)
        _log.warning("evicted", namespace=pod.namespace, pod=pod.pod, reason=allocation.problem)
        note = "Evicted: it received the GPUs of another pod, so its controller creates a new pod"
        await report_event(self._cluster, pod, "EvictedForWrongGPUs", note, "Evict")
