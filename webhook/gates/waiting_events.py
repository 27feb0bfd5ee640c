"""Waiting events: events of pods behind the scheduling gate, with the reasons of their waits.

An event is written soon after a pod begins to wait, when its reason changes, and every half hour;
the API server deletes events after an hour. In one round no more pods are checked than events may
be written. The causes of events take turns, so that a tenant with many pods of one cause does not
delay the events of others.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from ledger.core.model.denials import Denial, brief
from ledger.kube.api.cluster_ports import PodEvent
from ledger.kube.client.pod_event_queue import PodEventQueue

REASON: Final = "WaitingForQuota"

ROUND_MAX: Final = 64
"""Pods that are checked, and events that are written, in one round."""

FIRST_SECONDS: Final = 3.0
"""Time before the first event of a pod, because most pods are admitted at once."""

AGAIN_SECONDS: Final = 1_800.0
"""Period of the events of a pod whose reason does not change."""

CHANGED_SECONDS: Final = 60.0
"""Least time between two events of a pod."""

_ACTION: Final = "Admitting"


class Obstacle(msgspec.Struct, frozen=True, gc=False):
    """Why a pod waits. Another event is due when the `kind` changes.

    The amounts that other pods use change all the time, so the `kind` has none of them.
    """

    text: str
    kind: str

    @classmethod
    def of(cls, denial: Denial) -> "Obstacle":
        """Return the obstacle of a denial."""
        lines = ",".join(f"{shortage.account} {shortage.resource}" for shortage in denial.shortages)
        text = f"waits for room: {brief(denial)}"
        return cls(text, f"{denial.reason} {denial.transient} {lines}")

    def behind(self, name: str) -> "Obstacle":
        """Return the obstacle of the pods behind the pod of this name."""
        return Obstacle(f"waits behind pod {name}, which {self.text}", f"behind {self.kind}")


class PodWait(msgspec.Struct, frozen=True, gc=False):
    """A waiting pod, by the name of its namespace in the cluster, and its obstacle.

    The obstacle is None until a reservation was tried.
    """

    namespace: str
    name: str
    obstacle: Obstacle | None


Find = Callable[[str, str], PodWait | None]
"""Returns the wait of a pod by qualified namespace and uid, None if it no longer waits."""

Pod = tuple[str, str]
"""A qualified namespace and the uid of a pod."""


class WaitingEvents:
    """The last events of waiting pods."""

    def __init__(self, events: PodEventQueue, find: Find) -> None:
        self._events = events
        self._find = find
        self._new: dict[Pod, float] = {}
        self._unknown: dict[Pod, float] = {}
        self._changed: dict[Pod, float] = {}
        self._reported: dict[Pod, tuple[float, str]] = {}

    def __len__(self) -> int:
        """Return the number of remembered pods."""
        return len(self._new) + len(self._unknown) + len(self._reported)

    def note(self, pod: Pod, now: float) -> None:
        """Take note of a waiting pod, at `now` seconds of the loop."""
        if pod not in self._reported and pod not in self._unknown:
            self._new.setdefault(pod, now)

    def note_obstacle(self, pod: Pod, obstacle: Obstacle) -> None:
        """Take note of the reason of a wait; an event is due if it has changed."""
        reported = self._reported.get(pod)
        if reported is not None and reported[1] != obstacle.kind:
            self._changed.setdefault(pod, reported[0] + CHANGED_SECONDS)

    def forget(self, pod: Pod) -> None:
        """Forget a pod that no longer waits."""
        self._new.pop(pod, None)
        self._unknown.pop(pod, None)
        self._changed.pop(pod, None)
        self._reported.pop(pod, None)

    def write(self, now: float) -> None:
        """Queue the events that are due, up to the bounds; the others follow in later rounds."""
        for _, pod in zip(range(ROUND_MAX), self._due(now), strict=False):
            if self._events.full:
                return
            self._write(pod, now)

    def _due(self, now: float) -> Iterator[Pod]:
        """Yield the pods whose event is due, of each cause in turn.

        Write or forget each pod before the next one is taken.
        """
        has_due = True
        while has_due:
            has_due = False
            for pods in (self._new, self._unknown, self._changed, self._reported):
                pod = _first(pods)
                if pod is not None and self._is_due(pod, now):
                    has_due = True
                    yield pod

    def _is_due(self, pod: Pod, now: float) -> bool:
        since = self._new.get(pod, self._unknown.get(pod))
        if since is not None:
            return since + FIRST_SECONDS <= now
        reported = self._reported.get(pod)
        again = reported is not None and reported[0] + AGAIN_SECONDS <= now
        return again or self._changed.get(pod, math.inf) <= now

    def _write(self, pod: Pod, now: float) -> None:
        waits = self._find(*pod)
        kind = self._reported[pod][1] if pod in self._reported else ""
        self.forget(pod)
        if waits is None:
            return
        if waits.obstacle is None:
            if kind:
                self._reported[pod] = now, kind
            else:
                self._unknown[pod] = now
            return
        self._reported[pod] = now, waits.obstacle.kind
        self._events.put(
            PodEvent(
                namespace=waits.namespace,
                name=waits.name,
                uid=pod[1],
                reason=REASON,
                note=waits.obstacle.text,
                action=_ACTION,
                warning=True,
            )
        )


def _first(pods: Iterable[Pod]) -> Pod | None:
    return next(iter(pods), None)
