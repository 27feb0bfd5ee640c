"""Preemption: less important pods are evicted from cards that a pod fits nowhere without.

The scheduler's own preemption never sees a shortage of cards, so this is done here, beside the
answers of filter, for one pod after the other. Only some of the nodes are looked at each time: a
large cluster takes several tries.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from extender.asking import Asked, Remembered
from extender.making_room import Made, MakingRoom
from ledger.kube.errors import ClusterError
from ledger.runtime.counting import Count

WAITING_MAX: Final = 64
"""Pods that wait for others to be evicted; what comes then is taken when it is asked for again."""

NODES_MAX: Final = 32
"""Nodes that are looked at for a pod at a time; the next ones come when it is asked for again."""

PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
"""Pauses between two tries for one pod; they double once all nodes were looked at."""

REMEMBERED_MAX: Final = 1_024
"""Pods of which it is remembered what was tried."""

NEVER: Final = "Never"
"""The preemptionPolicy of a pod that waits and evicts nobody."""

_logger: Final = structlog.get_logger("extender.preemption")


class _Tried(NamedTuple):
    """What was tried for a pod: the nodes of this round, and when the next try may be."""

    nodes: frozenset[str] = frozenset()
    pause: float = PAUSE_SECONDS
    until: float = float("-inf")


class Preemption:
    """Has room made for the pods that want it, as long as `run` runs."""

    def __init__(self, making: MakingRoom, clock: Callable[[], float], count: Count) -> None:
        """Nobody waits yet; `clock` is the time of the loop in seconds."""
        self._making, self._clock, self._count = making, clock, count
        self._waiting: asyncio.Queue[tuple[Asked, Sequence[str]]] = asyncio.Queue(WAITING_MAX)
        self._queued: set[str] = set()
        self._tried: Remembered[_Tried] = Remembered(REMEMBERED_MAX)

    def want(self, asked: Asked, nodes: Sequence[str]) -> None:
        """Have room made for a pod that fits nowhere, on one of the nodes where that is possible.

        Nothing happens for a pod that is waiting for it, or was tried a moment ago.
        """
        if not nodes or asked.pod.spec.preemption_policy == NEVER or asked.uid in self._queued:
            return
        if self._clock() < self._known(asked).until or self._waiting.full():
            return
        self._queued.add(asked.uid)
        self._waiting.put_nowait((asked, nodes))

    async def run(self) -> None:
        """Make room for one pod after the other until cancelled."""
        while True:
            asked, nodes = await self._waiting.get()
            await self._try(asked, nodes)
            self._queued.discard(asked.uid)

    async def _try(self, asked: Asked, nodes: Sequence[str]) -> None:
        """Look at the next nodes; once all were looked at, begin anew, and less often."""
        known = self._known(asked)
        if known.nodes.issuperset(nodes):
            known = _Tried(pause=_longer(known.pause))
        chosen = [node for node in nodes if node not in known.nodes][:NODES_MAX]
        try:
            made = await self._making.make(asked, nodes, chosen)
        except ClusterError as error:
            made = Made("unavailable")
            _logger.warning("no_room_made", pod=asked.key, reason=str(error))
        after = _after(known, chosen, made)
        self._tried.put(asked.uid, after._replace(until=self._clock() + after.pause))
        self._count("preemptions_total", made.outcome)

    def _known(self, asked: Asked) -> _Tried:
        return self._tried.get(asked.uid) or _Tried()


def _after(known: _Tried, chosen: Sequence[str], made: Made) -> _Tried:
    """Return what was tried now: what is over with these nodes, or a new round."""
    if made.outcome == "nowhere":
        return known._replace(nodes=known.nodes.union(chosen))
    if made.outcome == "unavailable":
        return known._replace(pause=_longer(known.pause))
    return _Tried(frozenset({made.avoid} if made.avoid else ()))


def _longer(pause: float) -> float:
    return min(2 * pause, PAUSE_SECONDS_MAX)
