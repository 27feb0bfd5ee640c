"""Telling: events on pods, as those who describe a pod know them from HAMi.

They are told beside the answers, never before: one at a time, and none where too many wait. What is
told of a pod again and again, as it is tried again and again, is told once.
"""

from typing import Final

from extender.scheduler_api.scheduling_request import BoundedCache
from ledger.kube.api.objects import Pod
from ledger.kube.api.ports import BindingApi, PodEvent
from ledger.kube.client.event_queue import PodEventQueue
from ledger.runtime.counter_protocol import Count, uncounted

RECORDED_MAX: Final = 4_096
"""Pods of which the last event is remembered."""

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
    """Tells events of pods through an API server, as long as `run` runs."""

    def __init__(self, cluster: BindingApi, count: Count = uncounted) -> None:
        """Nothing is told yet."""
        self._events = PodEventQueue(cluster, "extender", count=count)
        self._last: BoundedCache[tuple[str, str]] = BoundedCache(RECORDED_MAX)

    def record(self, pod: Pod, reason: str, note: str, *, warning: bool = False) -> None:
        """Have an event told, unless it is what was told of this pod last."""
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
        """Tell what waits until cancelled; what cannot be told is dropped."""
        await self._events.run()
