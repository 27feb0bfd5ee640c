"""Pod event queue: writes events of pods to an API server in the background, one at a time.

The queue drops an event if it is full or if the API server refuses the event. Dropped events are
counted, and logged at most once a minute.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.cluster_ports import PodEvent

WAITING_MAX: Final = 256
"""Maximum number of queued events; further ones are dropped."""

LOG_SECONDS: Final = 60.0
"""Minimum interval between two log lines about dropped events."""

METRIC: Final = "events_dropped_total"
FULL: Final = "full"
REFUSED: Final = "refused"

Count = Callable[..., None]
"""Increments the counter with a name and labels."""

_log: Final = structlog.get_logger("ledger.kube")


class EventWrites(Protocol):
    """The part of an API client that writes events."""

    async def create_event(self, event: PodEvent) -> None:
        """Write an event. Raises ClusterError."""
        ...


class PodEventQueue:
    """Writes events of pods while `run` runs."""

    def __init__(self, cluster: EventWrites, source: str, *, count: Count) -> None:
        """`source` is the component that creates the events, for metrics and log."""
        self._cluster, self._source, self._count = cluster, source, count
        self._waiting: asyncio.Queue[PodEvent] = asyncio.Queue(WAITING_MAX)
        self._dropped = 0
        self._log_from = 0.0

    @property
    def full(self) -> bool:
        """Whether the next event would be dropped."""
        return self._waiting.full()

    def put(self, event: PodEvent) -> bool:
        """Queue an event; return False if it is dropped because the queue is full."""
        if self.full:
            self._drop(FULL, f"{WAITING_MAX} events wait to be written")
            return False
        self._waiting.put_nowait(event)
        return True

    async def run(self) -> None:
        """Write the queued events until cancelled."""
        while True:
            event = await self._waiting.get()
            try:
                await self._cluster.create_event(event)
            except ClusterError as error:
                self._drop(REFUSED, str(error))

    def _drop(self, cause: str, reason: str) -> None:
        self._count(METRIC, self._source, cause)
        self._dropped += 1
        now = asyncio.get_running_loop().time()
        if now < self._log_from:
            return
        _log.warning("events_dropped", source=self._source, count=self._dropped, reason=reason)
        self._dropped, self._log_from = 0, now + LOG_SECONDS
