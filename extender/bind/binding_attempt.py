"""Binding attempts: a Binding is written once, and its outcome is read.

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
from ledger.kube.api.cluster_ports import BindingApi, PodBinding
from ledger.kube.api.errors import ClusterError, ClusterUnavailable, VersionConflict
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
            found = await self._look(pod, node, str(error))
            return _overtaken(found, pod)
        except ClusterError as error:
            return await self._refused(pod, node, error)
        return BindingOutcome(BindingState.BOUND)

    async def _refused(self, pod: Pod, node: str, error: ClusterError) -> BindingOutcome:
        """Read whether the pod is bound already, or has changed."""
        found = await self._look(pod, node, str(error))
        if found.outcome is not BindingState.UNCLEAR or found.pod is None:
            return found
        if isinstance(error, VersionConflict) and _changed(pod, found.pod):
            return BindingOutcome(BindingState.CHANGED, str(error), found.pod)
        return BindingOutcome(BindingState.REFUSED, str(error), found.pod)

    async def _look(self, pod: Pod, node: str, reason: str) -> BindingOutcome:
        """Read the pod and return the outcome that it proves; UNCLEAR if it cannot be read."""
        for number in range(READS_MAX):
            await asyncio.sleep(PAUSE_SECONDS * number)
            try:
                found = await self._cluster.get_pod(pod.metadata.namespace, pod.metadata.name)
            except ClusterError as error:
                reason = f"{reason}; reading the pod again: {error}"
            else:
                return _proved(pod, found, node, reason)
        return BindingOutcome(BindingState.UNCLEAR, reason)


def _proved(pod: Pod, found: Pod | None, node: str, reason: str) -> BindingOutcome:
    if found is None or found.metadata.uid != pod.metadata.uid:
        return BindingOutcome(BindingState.REFUSED, "the pod is gone", found)
    where = found.spec.node_name
    if where == node:
        return BindingOutcome(BindingState.BOUND, "", found)
    if where:
        return BindingOutcome(BindingState.REFUSED, f"the pod is bound to {where}", found)
    return BindingOutcome(BindingState.UNCLEAR, reason, found)


def _overtaken(found: BindingOutcome, pod: Pod) -> BindingOutcome:
    """Return CHANGED for an unclear Binding if the pod is unbound at a later version.

    The Binding names the earlier version: it was not stored before, and never will be.
    """
    if found.outcome is not BindingState.UNCLEAR or found.pod is None:
        return found
    if 0 < version_of(pod) < version_of(found.pod):
        return BindingOutcome(BindingState.CHANGED, found.reason, found.pod)
    return found


def _changed(pod: Pod, found: Pod) -> bool:
    return pod.metadata.resource_version != found.metadata.resource_version
