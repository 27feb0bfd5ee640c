"""Preemption events: the events on pods that are evicted for others, and on those others.

kube-scheduler itself writes `Scheduled` for a bound pod, and `FailedScheduling` with the extender's
reasons for any other. So the extender writes no event of filter and bind.

Events are written beside the answers, one at a time, so that no answer waits for them. When too
many wait, further ones are dropped. An event that repeats the last one of its pod is not recorded.
"""

from typing import Final

from extender.scheduler_api.scheduling_request import BoundedCache
from ledger.kube.api.cluster_ports import EvictionApi, PodEvent
from ledger.kube.api.objects import Pod
from ledger.kube.client.pod_event_queue import PodEventQueue
from ledger.runtime.counter_protocol import Count, uncounted

RECORDED_MAX: Final = 4_096
"""Pods whose last event is remembered."""

PREEMPTION_STARTED: Final = "PreemptionStarted"
PREEMPTED: Final = "Preempted"

_ACTION: Final = "Preempting"


class EventRecorder:
    """Records events of pods at an API server, as long as `run` runs."""

    def __init__(self, cluster: EvictionApi, count: Count = uncounted) -> None:
        """Record no event yet; `count` counts the dropped ones."""
        self._events = PodEventQueue(cluster, source="extender", count=count)
        self._last: BoundedCache[tuple[str, str]] = BoundedCache(RECORDED_MAX)

    def record(self, pod: Pod, reason: str, note: str) -> None:
        """Record an event, unless it equals the last one of this pod."""
        meta = pod.metadata
        if self._last.get(meta.uid) == (reason, note):
            return
        event = PodEvent(
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            reason=reason,
            note=note,
            action=_ACTION,
        )
        if self._events.put(event):
            self._last[meta.uid] = (reason, note)

    async def run(self) -> None:
        """Write the waiting events until cancelled; an event that is refused is dropped."""
        await self._events.run()
