"""Telling: events on pods, as those who describe a pod know them from HAMi.

They are told beside the answers, never before: one at a time, and none where too many wait. What is
told of a pod again and again, as it is tried again and again, is told once.
"""

import asyncio
from typing import Final

import structlog

from extender.asking import Remembered
from ledger.kube.errors import ClusterError
from ledger.kube.objects import Pod
from ledger.kube.port import Binds, PodEvent

WAITING_MAX: Final = 256
"""Events that wait to be told; what comes then is dropped."""

TOLD_MAX: Final = 4_096
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

_logger: Final = structlog.get_logger("extender.telling")


class Telling:
    """Tells events of pods through an API server, as long as `run` runs."""

    def __init__(self, cluster: Binds) -> None:
        """Nothing is told yet."""
        self._cluster = cluster
        self._waiting: asyncio.Queue[PodEvent] = asyncio.Queue(WAITING_MAX)
        self._told: Remembered[tuple[str, str]] = Remembered(TOLD_MAX)

    def tell(self, pod: Pod, reason: str, note: str, *, warning: bool = False) -> None:
        """Have an event told, unless it is what was told of this pod last."""
        meta = pod.metadata
        if self._told.get(meta.uid) == (reason, note) or self._waiting.full():
            return
        self._told.put(meta.uid, (reason, note))
        self._waiting.put_nowait(
            PodEvent(
                namespace=meta.namespace,
                name=meta.name,
                uid=meta.uid,
                reason=reason,
                note=note,
                action=_ACTIONS.get(reason, "Binding"),
                warning=warning,
            )
        )

    async def run(self) -> None:
        """Tell what waits until cancelled; what cannot be told is dropped."""
        while True:
            event = await self._waiting.get()
            try:
                await self._cluster.create_event(event)
            except ClusterError as error:
                _logger.info("event_not_told", event_reason=event.reason, reason=str(error))
