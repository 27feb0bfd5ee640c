"""Queues: the pods of one namespace that wait behind the gate, and whose turn it is when."""

from datetime import datetime
from typing import Final

import msgspec

from webhook.sighting import Sighting

SLOW_SECONDS: Final = 30.0
"""After so long a pod is asked for again although nothing it waits for was seen to change."""


class Waiter(msgspec.Struct, frozen=True, gc=False):
    """A pod behind the gate; `unknown` is a resource of which it takes an unknown amount."""

    seen: Sighting
    created: datetime
    unknown: str

    @property
    def name(self) -> str:
        """Its name within its namespace."""
        return self.seen.key.partition("/")[2]


class Queue:
    """The pods of one namespace that wait, and what the first of them waits for.

    Until loop time `asleep_until` nothing is asked for, nor are those that could never fit until
    the times in `hopeless`, unless one of `accounts` changes. `refused` are those of which a denial
    is kept.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Waiter] = {}
        self.asleep_until = 0.0
        self.accounts: frozenset[str] = frozenset()
        self.hopeless: dict[str, float] = {}
        self.refused: set[str] = set()

    def first(self, now: float) -> Waiter | None:
        """Return the pod whose turn it is, None when there is none to be asked for now."""
        if now < self.asleep_until:
            return None
        candidates = (one for uid, one in self.pods.items() if self.hopeless.get(uid, 0.0) <= now)
        return min(candidates, key=lambda one: (one.created, one.seen.key), default=None)

    def sleep(self, now: float, accounts: frozenset[str]) -> None:
        """Ask for nothing until one of these accounts changes, or it was long enough."""
        self.asleep_until = now + SLOW_SECONDS
        self.accounts |= accounts

    def set_aside(self, one: Waiter, now: float, accounts: frozenset[str]) -> None:
        """Ask for the others first, until one of these accounts changes, or it was long enough."""
        self.hopeless[one.seen.uid] = now + SLOW_SECONDS
        self.accounts |= accounts

    def wake(self) -> None:
        """Ask again: something has changed."""
        self.asleep_until, self.accounts = 0.0, frozenset()
        self.hopeless.clear()
