"""The queue of one namespace: pods behind the scheduling gate, in the order of their turns."""

from datetime import datetime
from typing import Final

import msgspec

from webhook.gates.waiting_events import Obstacle
from webhook.settlement.observation_commands import ObservedObject

SLOW_SECONDS: Final = 30.0
"""Time after which a pod is tried again although none of its accounts has changed."""


class WaitingPod(msgspec.Struct, frozen=True, gc=False):
    """A pod behind the gate. Its demand for the resource `unknown` is unknown; empty for none."""

    seen: ObservedObject
    created: datetime
    unknown: str

    @property
    def name(self) -> str:
        """The pod's name within its namespace."""
        return self.seen.key.partition("/")[2]


class GateQueue:
    """The waiting pods of one namespace, and the accounts for which they wait.

    No pod is tried until loop time `asleep_until`, and no pod that could never fit until its time
    in `hopeless`, unless one of `accounts` changes. `refused` are the uids of pods with a recorded
    denial. `obstacles` are the reasons of the waits by uid. `blocking` is the pod behind which the
    others wait.
    """

    def __init__(self) -> None:
        self.pods: dict[str, WaitingPod] = {}
        self.asleep_until = 0.0
        self.accounts: frozenset[str] = frozenset()
        self.hopeless: dict[str, float] = {}
        self.refused: set[str] = set()
        self.obstacles: dict[str, Obstacle] = {}
        self.blocking: WaitingPod | None = None

    def first(self, now: float) -> WaitingPod | None:
        """Return the pod to try next, None if none is due."""
        if now < self.asleep_until:
            return None
        candidates = (one for uid, one in self.pods.items() if self.hopeless.get(uid, 0.0) <= now)
        return min(candidates, key=lambda one: (one.created, one.seen.key), default=None)

    def obstacle(self, uid: str) -> Obstacle | None:
        """Return why a pod waits, None if it was not tried yet."""
        own, first = self.obstacles.get(uid), self.blocking
        if own is not None or first is None:
            return own
        blocking = self.obstacles.get(first.seen.uid)
        return blocking.behind(first.name) if blocking is not None else None

    def forget(self, uid: str) -> None:
        """Forget a pod."""
        self.hopeless.pop(uid, None)
        self.refused.discard(uid)
        self.obstacles.pop(uid, None)
        self.pods.pop(uid, None)

    def sleep(self, one: WaitingPod, now: float, accounts: frozenset[str]) -> None:
        """Try no pod until one of these accounts changes, or for `SLOW_SECONDS`."""
        self.blocking = one
        self.asleep_until = now + SLOW_SECONDS
        self.accounts |= accounts

    def set_aside(self, one: WaitingPod, now: float, accounts: frozenset[str]) -> None:
        """Skip this pod until one of these accounts changes, or for `SLOW_SECONDS`."""
        self.hopeless[one.seen.uid] = now + SLOW_SECONDS
        self.accounts |= accounts

    def wake(self) -> None:
        """Try all pods again, because an account has changed."""
        self.blocking = None
        self.asleep_until, self.accounts = 0.0, frozenset()
        self.hopeless.clear()
