"""Queues: the pods of one namespace that wait behind the gate, and whose turn it is when."""

from datetime import datetime
from typing import Final

import msgspec

from webhook.gates.waiting_events import Obstacle
from webhook.settlement.observation import ObservedObject

SLOW_SECONDS: Final = 30.0
"""After so long a pod is asked for again although nothing it waits for was seen to change."""


class WaitingPod(msgspec.Struct, frozen=True, gc=False):
    """A pod behind the gate; `unknown` is a resource of which it takes an unknown amount."""

    seen: ObservedObject
    created: datetime
    unknown: str

    @property
    def name(self) -> str:
        """Its name within its namespace."""
        return self.seen.key.partition("/")[2]


class GateQueue:
    """The pods of one namespace that wait, and what the first of them waits for.

    Until loop time `asleep_until` nothing is asked for, nor are those that could never fit until
    the times in `hopeless`, unless one of `accounts` changes. `refused` are those of which a denial
    is kept. `obstacles` say why those wait that were asked for, by uid, and `blocking` is the one
    that holds up the others.
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
        """Return the pod whose turn it is, None when there is none to be asked for now."""
        if now < self.asleep_until:
            return None
        candidates = (one for uid, one in self.pods.items() if self.hopeless.get(uid, 0.0) <= now)
        return min(candidates, key=lambda one: (one.created, one.seen.key), default=None)

    def obstacle(self, uid: str) -> Obstacle | None:
        """Return why a pod waits, None while that is not known."""
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
        """Ask for nothing until one of these accounts changes, or it was long enough."""
        self.blocking = one
        self.asleep_until = now + SLOW_SECONDS
        self.accounts |= accounts

    def set_aside(self, one: WaitingPod, now: float, accounts: frozenset[str]) -> None:
        """Ask for the others first, until one of these accounts changes, or it was long enough."""
        self.hopeless[one.seen.uid] = now + SLOW_SECONDS
        self.accounts |= accounts

    def wake(self) -> None:
        """Ask again: something has changed."""
        self.blocking = None
        self.asleep_until, self.accounts = 0.0, frozenset()
        self.hopeless.clear()
