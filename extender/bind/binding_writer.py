"""Binding writer: writes a Binding once, and decides its outcome: bound, refused, changed, unclear.

Annotations and labels travel inside the Binding, so that a pod is bound with them or not at all.
An unclear answer proves nothing, so the pod is read, linearizably, before anything is undone: a pod
that is not bound then may still become bound.
"""

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from extender.scheduler_api.scheduling_request import version_of
from ledger.kube.api.cluster_errors import ClusterError, ClusterUnavailable, VersionConflict
from ledger.kube.api.cluster_ports import BindingApi, PodBinding
from ledger.kube.api.objects import Pod

READS_MAX: Final = 3
"""How often a pod is read after an unclear Binding until a read succeeds."""

PAUSE_SECONDS: Final = 0.5
"""Pause before the second of these, and twice as long before the third."""


class BindingState(Enum):
    """The outcome of a Binding."""

    BOUND = "bound"
    """The pod is bound to the node, by this Binding or by one before it."""
    REFUSED = "refused"
    """The pod is not bound to the node, and this Binding never will bind it."""
    CHANGED = "changed"
    """The pod has changed since its cards were chosen, and is not bound."""
    UNCLEAR = "unclear"
    """The pod may still become bound."""


class BindingOutcome(msgspec.Struct, frozen=True):
    """The outcome, its reason, and the pod as it was read afterwards, if it was."""

    outcome: BindingState
    reason: str = ""
    pod: Pod | None = None


class BindingWriter:
    """Binds pods through an API server."""

    def __init__(self, cluster: BindingApi) -> None:
        """Write to a cluster."""
        self._cluster = cluster

    async def write(
        self,
        pod: Pod,
        node: str,
        annotations: Mapping[str, str],
        labels: Mapping[str, str],
    ) -> BindingOutcome:
        """Bind this version of a pod to a node; the Binding is written once."""
        meta = pod.metadata
        binding = PodBinding(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            node=node,
            annotations=annotations,
            labels=labels,
            version=meta.resource_version,
        )
        try:
            await self._cluster.bind(binding)
        except ClusterUnavailable as error:
            verdict = await self._look(pod, node, str(error))
            return _overtaken(verdict, pod)
        except ClusterError as error:
            return await self._refused(pod, node, error)
        return BindingOutcome(BindingState.BOUND)

    async def _refused(self, pod: Pod, node: str, error: ClusterError) -> BindingOutcome:
        """Read whether the pod is bound already, or has changed."""
        verdict = await self._look(pod, node, str(error))
        if verdict.outcome is not BindingState.UNCLEAR or verdict.pod is None:
            return verdict
        if isinstance(error, VersionConflict) and _changed(pod, verdict.pod):
            return BindingOutcome(BindingState.CHANGED, str(error), verdict.pod)
        return BindingOutcome(BindingState.REFUSED, str(error), verdict.pod)

    async def _look(self, pod: Pod, node: str, reason: str) -> BindingOutcome:
        """Read the pod and return the outcome that it proves; UNCLEAR if it cannot be read."""
        for number in range(READS_MAX):
            await asyncio.sleep(PAUSE_SECONDS * number)
            try:
                current = await self._cluster.get_pod(pod.metadata.namespace, pod.metadata.name)
            except ClusterError as error:
                reason = f"{reason}; reading the pod again: {error}"
            else:
                return _proved(pod, current, node, reason)
        return BindingOutcome(BindingState.UNCLEAR, reason)


def _proved(pod: Pod, current: Pod | None, node: str, reason: str) -> BindingOutcome:
    if current is None or current.metadata.uid != pod.metadata.uid:
        return BindingOutcome(BindingState.REFUSED, "the pod is gone", current)
    where = current.spec.node_name
    if where == node:
        return BindingOutcome(BindingState.BOUND, "", current)
    if where:
        return BindingOutcome(BindingState.REFUSED, f"the pod is bound to {where}", current)
    return BindingOutcome(BindingState.UNCLEAR, reason, current)


def _overtaken(verdict: BindingOutcome, pod: Pod) -> BindingOutcome:
    """Return CHANGED for an unclear Binding if the pod is unbound at a later version.

    The Binding names the earlier version: it was not stored before, and never will be.
    """
    if verdict.outcome is not BindingState.UNCLEAR or verdict.pod is None:
        return verdict
    if 0 < version_of(pod) < version_of(verdict.pod):
        return BindingOutcome(BindingState.CHANGED, verdict.reason, verdict.pod)
    return verdict


def _changed(pod: Pod, current: Pod) -> bool:
    return pod.metadata.resource_version != current.metadata.resource_version
