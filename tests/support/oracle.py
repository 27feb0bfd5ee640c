"""An independent model of charging: slow, obvious, and written from the rules, not from the code.

It keeps every body that may exist per key and adds up from scratch whenever it is asked.
"""

from collections import defaultdict

from ledger.core import accounts, events
from ledger.core.amounts import Amounts
from ledger.core.events import AnyEvent


class Oracle:
    """Follows events and predicts the used amount of every (account, key)."""

    def __init__(self) -> None:
        self.bodies: dict[tuple[str, str], dict[tuple[str, int], Amounts]] = defaultdict(dict)
        self.accounts: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def see(self, event: AnyEvent) -> None:
        match event:
            case events.LimitSet():
                self.accounts[event.account] = (
                    event.covers,
                    tuple(line.key for line in event.lines),
                )
            case events.AccountClosed():
                del self.accounts[event.account]
            case events.ClusterRegistered():
                pass
            case _:
                self._see_body(event)

    def used(self) -> dict[tuple[str, str], int]:
        return {
            (account, key): self._sum(covers, accounts.resource_of(key))
            for account, (covers, keys) in self.accounts.items()
            for key in keys
        }

    def _see_body(self, event: AnyEvent) -> None:
        bodies = self.bodies[event.namespace, event.key]
        match event:
            case events.Reserved() | events.Raised():
                bodies[event.uid, event.base] = event.demand
            case events.Released():
                del bodies[event.uid, event.base]
            case events.Committed() | events.Observed():
                held = bodies.pop((event.uid, event.base), {}) if event.base >= 0 else {}
                for uid, base in list(bodies):
                    if base == events.OBJECT:
                        del bodies[uid, base]
                demand = held if event.demand is None else event.demand
                bodies[event.uid, events.OBJECT] = demand

    def _sum(self, covers: tuple[str, ...], resource: str) -> int:
        return sum(
            max((body.get(resource, 0) for body in bodies.values()), default=0)
            for (namespace, _), bodies in self.bodies.items()
            if namespace in covers
        )
