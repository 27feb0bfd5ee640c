"""HAMi pod events: the events on pods, with the reasons of HAMi, and which are not recorded.

Events are written beside the answers, one at a time, so that no answer waits for them. When too
many wait, further ones are dropped. An event that repeats the last one of its pod is not recorded.
"""

from typing import Final

from extender.scheduler_api.scheduling_request import BoundedCache
from ledger.kube.api.cluster_ports import BindingApi, PodEvent
from ledger.kube.api.objects import Pod
from ledger.kube.client.pod_event_queue import PodEventQueue
from ledger.runtime.counter_protocol import Count, uncounted

RECORDED_MAX: Final = 4_096
"""Pods whose last event is remembered."""

FILTERING_FAILED: Final = "FilteringFailed"
BINDING_SUCCEED: Final = "BindingSucceed"
BINDING_FAILED: Final = "BindingFailed"
PREEMPTION_STARTED: Final = "PreemptionStarted"
PREEMPTED: Final = "Preempted"

_ACTIONS: Final = {
    FILTERING_FAILED: "Scheduling",
    PREEMPTION_STARTED: "Preempting",
    PREEMPTED: "Preempting",
}


class EventRecorder:
    """Records events of pods at an API server, as long as `run` runs."""

    def __init__(self, cluster: BindingApi, count: Count = uncounted) -> None:
        """Record no event yet; `count` counts the dropped ones."""
        self._events = PodEventQueue(cluster, source="extender", count=count)
        self._last: BoundedCache[tuple[str, str]] = BoundedCache(RECORDED_MAX)

    def record(self, pod: Pod, reason: str, note: str, *, warning: bool = False) -> None:
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
            action=_ACTIONS.get(reason, "Binding"),
            warning=warning,
        )
        if self._events.put(event):
            self._last[meta.uid] = (reason, note)

    async def run(self) -> None:
        """Write the waiting events until cancelled; an event that is refused is dropped."""
        await self._events.run()
