"""The preemption queue: pods that fit nowhere, for which pods of lower priority are evicted.

The scheduler's own preemption never sees a shortage of cards. So the extender preempts for one pod
after the other, apart from the answers of filter, unless the pod's preemptionPolicy is Never. Each
try covers some of the nodes. A node may help later, when a budget allows more. So the queue tries
each pod again, on the nodes of its last filter, until the pod has its cards or the scheduler does
not ask any more.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from extender.preemption.victim_eviction import FITS, PreemptionOutcome, VictimEvictor
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.kube.api.cluster_errors import ClusterError
from ledger.runtime.counter_protocol import Count
from ledger.tasks.backoff import Backoff

PENDING_MAX: Final = 256
"""Pending pods at a time; a further pod is added when the scheduler asks about it again."""

NODES_MAX: Final = 32
"""Nodes of one try; the next try takes the next nodes."""

PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
"""Pauses between two tries for one pod. They double after each try, unless the next try takes
further nodes."""

ASKED_SECONDS: Final = 330.0
"""How long the nodes of the last filter are tried. The scheduler takes up a pod that fits nowhere
after 300 s at the latest."""

NEVER: Final = "Never"
"""The preemptionPolicy of a pod for which no pod is evicted."""

GIVEN_UP: Final = "given up"

_OVER: Final = ("gone", GIVEN_UP)
"""Outcomes after which the pod is left alone until the scheduler asks about it again. `fits` is not
one of them: the room may be taken before the scheduler asks."""

_log: Final = structlog.get_logger("extender")


class _PendingPod(msgspec.Struct):
    """A pod, and the nodes where others could leave for it; times are of the loop, in seconds.

    It is tried next when it is `due`, and no more from `until` on. `seen` are the nodes that were
    looked at in this round. It `fits` when the last try found room for it.
    """

    request: SchedulingRequest
    nodes: Sequence[str]
    due: float
    until: float
    backoff: Backoff = msgspec.field(
        default_factory=lambda: Backoff(PAUSE_SECONDS, PAUSE_SECONDS_MAX)
    )
    seen: frozenset[str] = frozenset()
    fits: bool = False


class PreemptionQueue:
    """Preempts for pending pods, as long as `run` runs."""

    def __init__(
        self, executor: VictimEvictor, *, clock: Callable[[], float], count: Count
    ) -> None:
        """Start without pending pods; `clock` is the time of the loop in seconds."""
        self._executor, self._clock, self._count = executor, clock, count
        self._pending: dict[str, _PendingPod] = {}
        self._wake = asyncio.Event()

    def want(self, request: SchedulingRequest, nodes: Sequence[str]) -> None:
        """Preempt for a pod that fits nowhere, on one of the nodes where evictions can help.

        A pending pod is not tried sooner, unless it fitted at the last try.
        """
        if not nodes or request.pod.spec.preemption_policy == NEVER:
            return
        now = self._clock()
        known = self._pending.get(request.uid)
        if known is not None and not known.fits:
            known.request, known.nodes, known.until = request, nodes, now + ASKED_SECONDS
        elif known is not None or len(self._pending) < PENDING_MAX:
            self._pending[request.uid] = _PendingPod(request, nodes, now, now + ASKED_SECONDS)
        self._wake.set()

    def is_claimed_for(self, uid: str) -> bool:
        """Return whether cards are kept for the pod of a uid."""
        return self._executor.is_claimed_for(uid)

    async def run(self) -> None:
        """Preempt for one pod after the other until cancelled."""
        while True:
            pending = min(self._pending.values(), key=lambda pod: pod.due, default=None)
            left = pending.due - self._clock() if pending is not None else None
            if pending is not None and left is not None and left <= 0:
                await self._try(pending)
                continue
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()

    async def _try(self, pending: _PendingPod) -> None:
        """Try the next nodes, and set the time of the next try."""
        made = (
            await self._make(pending)
            if self._clock() < pending.until
            else PreemptionOutcome(GIVEN_UP)
        )
        if made.outcome in _OVER:
            del self._pending[pending.request.uid]
        pending.fits = made.outcome == FITS
        pending.due = self._clock() + pending.backoff.seconds
        self._count("preemptions_total", made.outcome)

    async def _make(self, pending: _PendingPod) -> PreemptionOutcome:
        """Preempt on the nodes that were not tried yet; on all nodes once all were tried."""
        if pending.seen.issuperset(pending.nodes):
            pending.seen = frozenset()
            pending.backoff.lengthen()
        chosen = [node for node in pending.nodes if node not in pending.seen][:NODES_MAX]
        try:
            made = await self._executor.make(pending.request, pending.nodes, chosen)
        except ClusterError as error:
            _log.warning("no_room_made", pod=pending.request.key, reason=str(error))
            made = PreemptionOutcome("unavailable")
        if made.outcome == "nowhere":
            pending.seen = pending.seen.union(chosen)
        else:
            pending.seen = frozenset({made.avoid} if made.avoid else ())
            pending.backoff.lengthen()
        return made
