"""Attaching: the one write that binds a pod, and finding out what became of it.

Annotations and labels travel inside the Binding, so that a pod is bound with them or not at all.
An answer that is not clear proves nothing, so the pod is read, linearizably, before anything is
undone: what is not bound then may still come to be.
"""

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from extender.scheduler_api.scheduling_request import version_of
from ledger.kube.api.errors import ClusterError, ClusterUnavailable, VersionConflict
from ledger.kube.api.objects import Pod
from ledger.kube.api.ports import BindingApi, PodBinding

READS_MAX: Final = 3
"""How often a pod is read after an unclear Binding, until there is an answer."""

PAUSE_SECONDS: Final = 0.5
"""Pause before the second of these, and twice as long before the third."""


class BindingState(Enum):
    """What became of a Binding."""

    BOUND = "bound"
    """The pod is bound to the node, by this Binding or by one before it."""
    REFUSED = "refused"
    """The pod is not bound to the node and never will be by this."""
    CHANGED = "changed"
    """The pod is another version of itself than the one that was chosen for, and not bound."""
    UNCLEAR = "unclear"
    """It may still come to be bound."""


class BindingOutcome(msgspec.Struct, frozen=True):
    """The outcome, why it is not another one, and the pod as it was read since, if it was."""

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
        """Bind a pod to a node, as the version of it that is given; nothing is tried twice."""
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
        """Look whether it is refused because it is done, or because the pod has changed."""
        found = await self._look(pod, node, str(error))
        if found.outcome is not BindingState.UNCLEAR or found.pod is None:
            return found
        if isinstance(error, VersionConflict) and _changed(pod, found.pod):
            return BindingOutcome(BindingState.CHANGED, str(error), found.pod)
        return BindingOutcome(BindingState.REFUSED, str(error), found.pod)

    async def _look(self, pod: Pod, node: str, reason: str) -> BindingOutcome:
        """Read the pod, and say what that proves; where it cannot be read, nothing."""
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
    """Return what an unclear Binding amounts to once the pod is at a later version, unbound.

    The Binding names the earlier version: it was not stored before, and never will be.
    """
    if found.outcome is not BindingState.UNCLEAR or found.pod is None:
        return found
    if 0 < version_of(pod) < version_of(found.pod):
        return BindingOutcome(BindingState.CHANGED, found.reason, found.pod)
    return found


def _changed(pod: Pod, found: Pod) -> bool:
    return pod.metadata.resource_version != found.metadata.resource_version
