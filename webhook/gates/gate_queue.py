"""Gate queues: which pod behind the scheduling gate is tried next.

The oldest pod of a namespace is tried first. If its denial may pass, the namespace sleeps, so that
no younger pod takes what the oldest waits for. A pod that can never fit is set aside, and does not
block those behind it. Namespaces take turns, so that none waits for the queue of another.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from ledger.core.model import events
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log.records import Record
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
        candidates = (pod for uid, pod in self.pods.items() if self.hopeless.get(uid, 0.0) <= now)
        return min(candidates, key=lambda pod: (pod.created, pod.seen.key), default=None)

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

    def keep_waiting(self, pod: WaitingPod, denial: Denial, now: float) -> Obstacle:
        """Return why a denied pod waits, and decide what its denial means for those behind it.

        Until a short account changes, or for `SLOW_SECONDS`, no pod of the namespace is tried if
        the denial is transient; else only this pod is set aside.
        """
        obstacle = Obstacle.of(denial)
        self.obstacles[pod.seen.uid] = obstacle
        self.accounts |= {shortage.account for shortage in denial.shortages}
        if denial.transient:
            self.blocking = pod
            self.asleep_until = now + SLOW_SECONDS
        else:
            self.hopeless[pod.seen.uid] = now + SLOW_SECONDS
        return obstacle

    def wake(self) -> None:
        """Try all pods again, because an account has changed."""
        self.blocking = None
        self.asleep_until, self.accounts = 0.0, frozenset()
        self.hopeless.clear()


class GateQueues:
    """The queues of all namespaces, by qualified namespace, in the order of their turns."""

    def __init__(self) -> None:
        self.by_namespace: dict[str, GateQueue] = {}

    def __len__(self) -> int:
        """Return the number of waiting pods."""
        return sum(len(queue.pods) for queue in self.by_namespace.values())

    def oldest(self) -> datetime | None:
        """Return when the oldest waiting pod was created, None if none waits."""
        pods = (pod for queue in self.by_namespace.values() for pod in queue.pods.values())
        return min((pod.created for pod in pods), default=None)

    def add(self, pod: WaitingPod) -> None:
        """Add a waiting pod, or replace what was known of it."""
        queue = self.by_namespace.setdefault(pod.seen.namespace, GateQueue())
        queue.pods[pod.seen.uid] = pod

    def forget(self, namespace: str, uid: str) -> None:
        """Forget a pod that no longer waits."""
        queue = self.by_namespace.get(namespace)
        if queue is not None:
            queue.forget(uid)
            if not queue.pods:
                del self.by_namespace[namespace]

    def clear(self) -> None:
        """Forget all pods."""
        self.by_namespace.clear()

    def turns(self, clock: Callable[[], float]) -> Iterator[tuple[GateQueue, WaitingPod]]:
        """Yield the next pod of one namespace after the other, while any has one.

        `clock` returns the loop time. A namespace goes to the end before its turn, so the next
        round begins with those that had no turn in this one, also if this one ends early.
        """
        has_more = True
        while has_more:
            has_more = False
            for namespace in list(self.by_namespace):
                queue = self.by_namespace.pop(namespace, None)
                if queue is None:
                    continue  # forgotten since this turn began
                self.by_namespace[namespace] = queue
                pod = queue.first(clock())
                if pod is not None:
                    has_more = True
                    yield queue, pod

    def wake(self, record: Record, state: State) -> None:
        """Wake the namespaces that wait for accounts that a record changes."""
        asleep = [queue for queue in self.by_namespace.values() if queue.accounts]
        if not asleep:
            return
        changed = _changed_accounts(record, state)
        for queue in asleep:
            if not queue.accounts.isdisjoint(changed):
                queue.wake()


def _changed_accounts(record: Record, state: State) -> set[str]:
    """Return the accounts of which a record frees an amount or changes the limits."""
    changed = set[str]()
    for item in record.items:
        if isinstance(item.event, events.LimitSet | events.AccountClosed):
            changed.add(item.event.account)
        for index in range(0, len(item.postings), 3):
            if item.postings[index + 1] < 0:
                changed.add(state.names[item.postings[index]][0])
    return changed
