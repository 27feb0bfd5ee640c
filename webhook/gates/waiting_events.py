"""Events of pods that wait behind the gate, which say what they wait for.

An event is written soon after a pod began to wait, again when it waits for something else, and
every half hour besides; the API server forgets events after an hour. In one round no more pods are
looked at than events may be written. What is due for different causes takes turns, so that a tenant
with many pods of one cause does not keep others from their events.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from ledger.core.model.denials import Denial, brief
from ledger.kube.api.ports import PodEvent
from ledger.kube.client.event_queue import EventQueue

REASON: Final = "WaitingForQuota"

ROUND_MAX: Final = 64
"""Pods that are looked at, and events that are written, in one round."""

FIRST_SECONDS: Final = 3.0
"""How long a pod waits before its first event: most are let in at once."""

AGAIN_SECONDS: Final = 1_800.0
"""How long after an event another one is written although nothing has changed."""

CHANGED_SECONDS: Final = 60.0
"""How long after an event the next one is written at the earliest, whatever changes."""

_ACTION: Final = "Admitting"


class Obstacle(msgspec.Struct, frozen=True, gc=False):
    """Why a pod waits, in words, and what of it makes another event when it changes.

    Amounts that others use change all the time, so the `kind` has none of them.
    """

    text: str
    kind: str

    @classmethod
    def of(cls, denial: Denial) -> "Obstacle":
        """Return what a denial says."""
        lines = ",".join(f"{one.account} {one.resource}" for one in denial.shortages)
        text = f"waits for room: {brief(denial)}"
        return cls(text, f"{denial.reason} {denial.transient} {lines}")

    def behind(self, name: str) -> "Obstacle":
        """Return why those wait that are behind the pod of this name."""
        return Obstacle(f"waits behind pod {name}, which {self.text}", f"behind {self.kind}")


class PodWait(msgspec.Struct, frozen=True, gc=False):
    """A pod that waits, by the name of its namespace in the cluster, and its obstacle.

    There is no obstacle as long as the ledger was not asked.
    """

    namespace: str
    name: str
    obstacle: Obstacle | None


Find = Callable[[str, str], PodWait | None]
"""Returns what is known of a pod by qualified namespace and uid, None when it waits no more."""

Pod = tuple[str, str]
"""A qualified namespace and the uid of a pod."""


class WaitingEvents:
    """Which waiting pods have had which event, and when."""

    def __init__(self, events: EventQueue, find: Find) -> None:
        self._events = events
        self._find = find
        self._new: dict[Pod, float] = {}
        self._unknown: dict[Pod, float] = {}
        self._changed: dict[Pod, float] = {}
        self._told: dict[Pod, tuple[float, str]] = {}

    def __len__(self) -> int:
        """Return how many pods are remembered."""
        return len(self._new) + len(self._unknown) + len(self._told)

    def note(self, pod: Pod, now: float) -> None:
        """Take note of a pod that waits, at `now` seconds of the loop."""
        if pod not in self._told and pod not in self._unknown:
            self._new.setdefault(pod, now)

    def note_obstacle(self, pod: Pod, obstacle: Obstacle) -> None:
        """Take note of why a pod waits: another event is due when that has changed."""
        told = self._told.get(pod)
        if told is not None and told[1] != obstacle.kind:
            self._changed.setdefault(pod, told[0] + CHANGED_SECONDS)

    def forget(self, pod: Pod) -> None:
        """Forget a pod that waits no more."""
        self._new.pop(pod, None)
        self._unknown.pop(pod, None)
        self._changed.pop(pod, None)
        self._told.pop(pod, None)

    def write(self, now: float) -> None:
        """Write the events that are due, up to the bounds; the others are due in later rounds."""
        for _, pod in zip(range(ROUND_MAX), self._due(now), strict=False):
            if self._events.full:
                return
            self._write(pod, now)

    def _due(self, now: float) -> Iterator[Pod]:
        """Yield the pods whose event is due, of each cause in turn.

        Each must have been written or forgotten before the next one is asked for.
        """
        found = True
        while found:
            found = False
            for pods in (self._new, self._unknown, self._changed, self._told):
                pod = _first(pods)
                if pod is not None and self._is_due(pod, now):
                    found = True
                    yield pod

    def _is_due(self, pod: Pod, now: float) -> bool:
        since = self._new.get(pod, self._unknown.get(pod))
        if since is not None:
            return since + FIRST_SECONDS <= now
        told = self._told.get(pod)
        again = told is not None and told[0] + AGAIN_SECONDS <= now
        return again or self._changed.get(pod, math.inf) <= now

    def _write(self, pod: Pod, now: float) -> None:
        waits = self._find(*pod)
        kind = self._told[pod][1] if pod in self._told else ""
        self.forget(pod)
        if waits is None:
            return
        if waits.obstacle is None:
            if kind:
                self._told[pod] = now, kind
            else:
                self._unknown[pod] = now
            return
        self._told[pod] = now, waits.obstacle.kind
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
