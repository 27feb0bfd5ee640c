"""The books: an independent account of what the log's events say, kept the slow and obvious way.

Written from the rules and not from the code: every body that may exist is kept per key, and what
is used is added up from scratch. Nothing of `ledger.core` but the events' types is used.
"""

from collections.abc import Iterator
from typing import Final

from ledger.core import events
from ledger.core.amounts import Amounts
from ledger.core.events import AnyEvent

Key = tuple[str, str]
"""Qualified namespace and key."""

Line = tuple[str, str]
"""Account and quota key."""

_TRUTH: Final = (events.Observed, events.LimitSet)
"""What may lead to more being used than the limit says."""


class Books:
    """What is charged, per key the bodies `(uid, base)` that may exist; base -1 is the object."""

    def __init__(self) -> None:
        self.bodies: dict[Key, dict[tuple[str, int], Amounts]] = {}
        self.accounts: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {}
        self._used: dict[Line, int] = {}
        self._stamps: dict[tuple[str, str], tuple[Key, str]] = {}

    def enter(self, event: AnyEvent) -> Iterator[str]:
        """Enter an event; yield a sentence for everything that is wrong with it."""
        if isinstance(event, events.LimitSet):
            limits = {line.key: line.limit for line in event.lines}
            self.accounts[event.account] = event.covers, limits
        elif isinstance(event, events.AccountClosed):
            del self.accounts[event.account]
        elif not isinstance(event, events.ClusterRegistered):
            yield from self._enter_body(event)
        before, self._used = self._used, self._add_up()
        if not isinstance(event, _TRUTH):
            yield from self._rises_over_a_limit(event, before)

    def used(self) -> dict[Line, int]:
        """Return what is used of every line of every open account."""
        return self._used

    def _enter_body(self, event: AnyEvent) -> Iterator[str]:
        assert isinstance(
            event,
            events.Reserved | events.Raised | events.Committed | events.Observed | events.Released,
        )
        bodies = self.bodies.setdefault((event.namespace, event.key), {})
        where = f"{event.namespace}/{event.key} {event.uid}"
        if isinstance(event, events.Reserved):
            if (event.uid, event.base) in bodies:
                yield f"{where}: the attempt at {event.base} is charged a second time"
            yield from self._stamped(event)
            bodies[event.uid, event.base] = event.demand
        elif isinstance(event, events.Raised):
            bodies[event.uid, event.base] = event.demand
        elif isinstance(event, events.Released):
            if bodies.pop((event.uid, event.base), None) is None:
                yield f"{where}: {event.base} is released and was not held"
        else:
            _settle(bodies, event)

    def _stamped(self, event: events.Reserved) -> Iterator[str]:
        """Of one API request at most one attempt is open."""
        if not event.stamp:
            return
        key, uid = self._stamps.get((event.namespace, event.stamp), (("", ""), ""))
        if (uid, 0) in self.bodies.get(key, {}) and uid != event.uid:
            yield f"{event.key} {event.uid}: {uid} of the same request is still charged"
        self._stamps[event.namespace, event.stamp] = (event.namespace, event.key), event.uid

    def _add_up(self) -> dict[Line, int]:
        charges: dict[tuple[str, str], int] = {}
        for (namespace, _), bodies in self.bodies.items():
            largest: dict[str, int] = {}
            for body in bodies.values():
                for resource, amount in body.items():
                    largest[resource] = max(amount, largest.get(resource, 0))
            for resource, amount in largest.items():
                charges[namespace, resource] = charges.get((namespace, resource), 0) + amount
        return {
            (account, key): sum(charges.get((name, key.partition(".")[2]), 0) for name in covers)
            for account, (covers, limits) in self.accounts.items()
            for key in limits
        }

    def _rises_over_a_limit(self, event: AnyEvent, before: dict[Line, int]) -> Iterator[str]:
        for line, used in self._used.items():
            account, key = line
            limit = self.accounts[account][1][key]
            if used > limit and used > before.get(line, 0):
                yield f"{type(event).__name__} takes {key} of {account} to {used} of {limit}"


def _settle(
    bodies: dict[tuple[str, int], Amounts], event: events.Committed | events.Observed
) -> None:
    held = bodies.pop((event.uid, event.base), None) if event.base >= 0 else None
    for uid, base in list(bodies):
        if base == events.OBJECT:
            del bodies[uid, base]
    demand = event.demand if event.demand is not None else held
    bodies[event.uid, events.OBJECT] = demand or {}
