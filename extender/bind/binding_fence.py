"""The binding fence: the wait for another extender's Binding, and the proof that it cannot come.

Each Binding to cards names one resourceVersion of the pod, which the ledger stores with the
placement (`Placement.version`). The API server stores the Binding only while the pod is at that
version. So once a linearizable read shows the pod unbound at a later version, the API server
refuses every Binding for the earlier version for ever. If the pod has not changed by itself, the
extender writes a label first. The later version is the proof, and not the label: admission may
remove the label, and then the pod has not changed and nothing is proved.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from extender.scheduler_api.scheduling_request import (
    PODS_MAX,
    BoundedCache,
    SchedulingRequest,
    version_of,
)
from ledger.core.model.cards import Placement
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import BindingApi
from ledger.kube.api.objects import Pod
from ledger.kube.hami.fence_label import LABEL

FENCE_SECONDS: Final = 3.0
"""How long an extender waits for another extender's Binding before it fences that Binding. Most
Bindings take a tenth of a second. A Binding that is fenced too early costs its extender a second
try and no cards."""

FENCE_DOUBLINGS_MAX: Final = 3
"""How often that pause doubles for a pod that was fenced here before, so that two extenders of a
slow API server do not refuse one another's Bindings for ever."""


class TimedPlacement(msgspec.Struct, frozen=True):
    """A placement, by its `version` and `time` in the ledger.

    `since` is a loop time in seconds: before it was placed, or when this extender first saw it.
    """

    version: int
    time: int
    since: float

    def is_of(self, placed: Placement) -> bool:
        return (self.version, self.time) == (placed.version, placed.time)


class FenceWait:
    """Decides how long the Binding of another extender is waited for before a fence is set."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        """Wait this many seconds the first time; `clock` is the time of the loop in seconds."""
        self._clock, self._fence_seconds = clock, seconds
        self._waited_for: BoundedCache[TimedPlacement] = BoundedCache(PODS_MAX)
        self._fences: BoundedCache[int] = BoundedCache(PODS_MAX)

    def over_at(self, request: SchedulingRequest, placed: Placement) -> float:
        """Return the loop time from which another call's Binding is to be fenced.

        This is at once (-inf) if the pod has changed since the placement, because the API server
        refuses every Binding for the earlier version. It is never (inf) for a placement without a
        version, which a program from before the fence has made: its Binding may name any version.
        """
        if not placed.version:
            return math.inf
        if request.version > placed.version:
            return -math.inf
        known = self._waited_for.get(request.uid)
        if known is None or not known.is_of(placed):
            known = TimedPlacement(placed.version, placed.time, self._clock())
            self._waited_for[request.uid] = known
        doublings = min(self._fences.get(request.uid) or 0, FENCE_DOUBLINGS_MAX)
        return known.since + self._fence_seconds * (1 << doublings)

    def note_fence(self, request: SchedulingRequest) -> None:
        """Count a fence of another call's Binding of a pod."""
        self._fences[request.uid] = (self._fences.get(request.uid) or 0) + 1


class BindingFence:
    """Fences the Bindings of one cluster's pods."""

    def __init__(self, cluster: BindingApi) -> None:
        """Read and write through a cluster."""
        self._cluster = cluster

    async def fence(self, pod: Pod, version: int) -> Pod | None:
        """Make the API server refuse Bindings of `pod` at `version`; return the pod as read then.

        Returns a pod that is bound, or at a later version, where these are refused; None when the
        pod is gone. Any other pod proves nothing. Raises ClusterError, which proves nothing either.
        """
        current = await self._read(pod)
        if current is None or current.spec.node_name or version_of(current) > version:
            return current
        meta = current.metadata
        # The next read shows whether the label was written, also after an unclear answer.
        with suppress(ClusterError):
            labels = {LABEL: str(version)}
            await self._cluster.label_pod(meta.namespace, meta.name, labels, meta.resource_version)
        return await self._read(pod)

    async def _read(self, pod: Pod) -> Pod | None:
        """Read a pod, linearizably; None where it is gone or another one has its name."""
        meta = pod.metadata
        current = await self._cluster.get_pod(meta.namespace, meta.name)
        return current if current is not None and current.metadata.uid == meta.uid else None
