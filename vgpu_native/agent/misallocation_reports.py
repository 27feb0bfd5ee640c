"""Misallocation reports: events and evictions of pods that received the cards of another pod.

The kubelet keeps an answer as long as the pod lives and retries the start with it, so the pod never
starts. The agent records one event of the pod. By policy it evicts the pod, so that its controller
makes another.
"""

from collections.abc import Iterable
from typing import Final, Literal

import structlog

from ledger.kube.api.errors import ClusterError, NotFound
from vgpu_native.agent.agent_events import PodWrites, report_event
from vgpu_native.plugin.allocation.allocation_store import Allocation, ContainerOwner

MisallocationPolicy = Literal["report", "evict"]

_log: Final = structlog.get_logger("gpuledger.node.agent_process")


class MisallocationReporter:
    """Reports each misallocation once, and evicts by policy; failed writes are tried again."""

    def __init__(self, cluster: PodWrites | None, policy: MisallocationPolicy) -> None:
        """Without a cluster, misallocations are only logged."""
        self._cluster, self._policy = cluster, policy
        self._logged: set[str] = set()
        self._told: set[str] = set()
        self._evicted: set[str] = set()

    async def report(self, allocations: Iterable[Allocation]) -> None:
        """Report, and by policy evict, the pods of misallocations among these allocations."""
        wrong = [(one, one.owner) for one in allocations if one.problem and one.owner]
        self._forget_all_but({one.token for one, _ in wrong})
        for one, pod in wrong:
            # The ledger has no name for a pod without a placement: the pod is gone.
            if pod.pod:
                await self._tell(one, pod)
                if self._policy == "evict":
                    await self._evict(one, pod)

    def _forget_all_but(self, tokens: set[str]) -> None:
        self._logged &= tokens
        self._told &= tokens
        self._evicted &= tokens

    async def _tell(self, one: Allocation, pod: ContainerOwner) -> None:
        if one.token not in self._logged:
            self._logged.add(one.token)
            _log.warning(
                "wrong_cards_answered", namespace=pod.namespace, pod=pod.pod, reason=one.problem
            )
        if one.token not in self._told and await report_event(
            self._cluster, pod, "WrongGPUsAnswered", one.problem, "Start"
        ):
            self._told.add(one.token)

    async def _evict(self, one: Allocation, pod: ContainerOwner) -> None:
        if one.token in self._evicted or self._cluster is None:
            return
        try:
            await self._cluster.evict(pod.namespace, pod.pod, pod.uid)
        except NotFound:
            self._evicted.add(one.token)
            return
        except (ClusterError, TimeoutError) as error:
            _log.warning("not_evicted", pod=f"{pod.namespace}/{pod.pod}", reason=str(error))
            return
        self._evicted.add(one.token)
        _log.warning("evicted", namespace=pod.namespace, pod=pod.pod, reason=one.problem)
        note = "Evicted so that another pod is made: it was answered GPUs of another"
        await report_event(self._cluster, pod, "EvictedForWrongGPUs", note, "Evict")
