"""Limits of a what-if: counts the recorded reservations that another limit would have refused.

It counts the postings of the log again. A reservation beyond the other limit is refused; neither it
nor the later events of its object are counted. No refused request is tried a second time.
"""

from collections import Counter

import msgspec

from ledger.core.model.commands import CREATE
from ledger.core.model.events import AnyEvent, Observed, Placed, Raised, Reserved
from ledger.core.model.state import State
from ledger.log.records import Item, Record

Key = tuple[str, str]
"""A namespace and a key in it."""


class TriedLimit(msgspec.Struct, frozen=True):
    """A limit to try: an account, a key of its limits, and the amount."""

    account: str
    resource: str
    limit: int


class LimitResult(msgspec.Struct, frozen=True):
    """The result of a limit: the refused ones of the reservations that requested its resource.

    `before` is the used amount at the beginning, `peak` the largest afterwards.
    """

    account: str
    resource: str
    limit: int
    reservations: int
    refused: int
    before: int
    peak: int


class LimitTrial:
    """Counts reservations under other limits, from a given state.

    `refused` are the uids of objects that would not have been created, and of the pods of such
    workloads.
    """

    def __init__(self, limits: tuple[TriedLimit, ...], state: State) -> None:
        """Begin with the used amounts of a state."""
        self.refused: set[str] = set()
        self._refused_keys: set[Key] = set()
        self._refused_roots: dict[Key, Key] = {}
        self._limits = limits
        self._of = {(limit.account, limit.resource): at for at, limit in enumerate(limits)}
        self._used = [0] * len(limits)
        for line, name in enumerate(state.names):
            if name in self._of:
                self._used[self._of[name]] += state.used[line]
        self._before, self._peak = tuple(self._used), list(self._used)
        self._asked, self._denied = [0] * len(limits), [0] * len(limits)
        self._never: Counter[tuple[Key, int]] = Counter()

    def note(self, state: State, record: Record) -> None:
        """Count a record that was applied to the state."""
        for item in record.items:
            if isinstance(item.event, Reserved | Observed):
                self._inherit(item.event)
            deltas = self._deltas(state, item)
            if deltas:
                self._count(item.event, deltas)

    def results(self) -> list[LimitResult]:
        """Return the result of each limit."""
        return [
            LimitResult(
                limit.account,
                limit.resource,
                limit.limit,
                self._asked[at],
                self._denied[at],
                self._before[at],
                self._peak[at],
            )
            for at, limit in enumerate(self._limits)
        ]

    def _deltas(self, state: State, item: Item) -> dict[int, int]:
        """Return the change of each limit's used amount by an event."""
        deltas: dict[int, int] = {}
        for at in range(0, len(item.postings), 3):
            which = self._of.get(state.names[item.postings[at]])
            if which is not None:
                deltas[which] = deltas.get(which, 0) + item.postings[at + 1]
        return deltas

    def _count(self, event: AnyEvent, deltas: dict[int, int]) -> None:
        key = (getattr(event, "namespace", ""), getattr(event, "key", ""))
        asks = isinstance(event, Reserved | Raised) and not event.forced
        over = [at for at, delta in deltas.items() if self._is_over(at, delta)] if asks else []
        for at in deltas if asks else ():
            self._asked[at] += deltas[at] > 0
        for at in over:
            self._denied[at] += 1
        if isinstance(event, Reserved) and event.base == CREATE:
            self._created(event, key, refused=bool(over))
        theirs = isinstance(event, Reserved | Observed | Placed) and event.uid in self.refused
        for at, delta in deltas.items():
            self._post(key, at, delta, counts=not (over or theirs))

    def _inherit(self, event: Reserved | Observed) -> None:
        """Refuse the pods of a workload that would not have been created."""
        root, key = (event.namespace, event.root), (event.namespace, event.key)
        if root in self._refused_keys:
            self.refused.add(event.uid)
            self._refused_roots[key] = root
        else:
            self._refused_roots.pop(key, None)

    def _created(self, event: Reserved, key: Key, *, refused: bool) -> None:
        """Record whether the object of a key exists, by its newest attempt."""
        if refused:
            self.refused.add(event.uid)
            self._refused_keys.add(key)
        else:
            self._refused_keys.discard(key)

    def _is_over(self, at: int, delta: int) -> bool:
        return delta > 0 and self._used[at] + delta > self._limits[at].limit

    def _post(self, key: Key, at: int, delta: int, *, counts: bool) -> None:
        """Add changes of counted amounts; a decrease of refused amounts was never counted.

        An allocation of a pod lowers the charge of its root.
        """
        if delta > 0 and not counts:
            self._never[key, at] += delta
            return
        for owner in (key, self._refused_roots.get(key)) if delta < 0 else ():
            if owner is not None:
                spared = min(self._never[owner, at], -delta)
                self._never[owner, at] -= spared
                delta += spared
        self._used[at] += delta
        self._peak[at] = max(self._peak[at], self._used[at])
