"""An independent model of charging: slow, obvious, and written from the rules, not from the code.

It keeps every body that may exist per key and adds up from scratch whenever it is asked.
"""

from collections import defaultdict
from itertools import chain

from ledger.core import accounts, events
from ledger.core.amounts import Amounts
from ledger.core.events import AnyEvent
from ledger.core.traits import Reach, Requirement, Selection, Traits

Place = tuple[str, str]
"""A namespace and a key in it."""


class Body:
    """One thing that a key may turn out to be."""

    def __init__(self, demand: Amounts, root: str, traits: Traits) -> None:
        self.demand, self.root, self.traits = demand, root, traits


class Oracle:
    """Follows events and predicts the used amount of every (account, key)."""

    def __init__(self) -> None:
        self.bodies: dict[Place, dict[tuple[str, int], Body]] = defaultdict(dict)
        self.limits: dict[str, events.LimitSet] = {}
        self.described: dict[str, str] = {}
        self.labels: dict[str, int] = {}

    def see(self, event: AnyEvent) -> None:
        match event:
            case events.LimitSet():
                self.limits[event.account] = event
                self.labels |= dict(event.labels)
                self._forget()
            case events.AccountClosed():
                del self.limits[event.account]
                self._forget()
            case events.Described():
                self.described[event.subject] = event.traits
            case events.ClusterRegistered():
                pass
            case _:
                self._see_body(event)

    def used(self) -> dict[tuple[str, str], int]:
        return {
            (account, line.key): sum(
                amount.get(accounts.resource_of(line.key), 0)
                for namespace, traits, amount in self._charged()
                if self._covers(limit, namespace) and _selected(limit.selects, traits, self.labels)
            )
            for account, limit in self.limits.items()
            for line in limit.lines
        }

    def _forget(self) -> None:
        """A key that no account selects by has no number; it gets another one next time."""
        named = {one.key for limit in self.limits.values() for one in limit.selects}
        self.labels = {key: one for key, one in self.labels.items() if key in named}

    def _see_body(self, event: AnyEvent) -> None:
        bodies = self.bodies[event.namespace, event.key]
        match event:
            case events.Reserved():
                bodies[event.uid, event.base] = Body(event.demand, event.root, event.traits)
            case events.Raised():
                held = bodies.pop((event.uid, event.base))
                bodies[event.uid, event.base] = Body(event.demand, held.root, event.traits)
            case events.Released():
                del bodies[event.uid, event.base]
            case events.Committed() | events.Observed():
                self._commit(bodies, event)

    def _commit(
        self, bodies: dict[tuple[str, int], Body], event: events.Committed | events.Observed
    ) -> None:
        held = bodies.pop((event.uid, event.base), None) if event.base >= 0 else None
        stored = None
        for uid, base in list(bodies):
            if base == events.OBJECT:
                stored = bodies.pop((uid, base))
        if isinstance(event, events.Observed):
            body = Body(event.demand, event.root, event.traits)
        else:
            known = held or stored
            assert known is not None
            demand = known.demand if event.demand is None else event.demand
            body = Body(demand, known.root, known.traits)
        bodies[event.uid, events.OBJECT] = body

    def _charged(self) -> list[tuple[str, Traits, Amounts]]:
        """Return everything that is charged: namespace, traits, amounts."""
        present = {place: bodies for place, bodies in self.bodies.items() if bodies}
        found = []
        drawn: dict[Place, list[Amounts]] = defaultdict(list)
        for (namespace, key), bodies in present.items():
            root = (namespace, _root(bodies))
            if key.startswith("pods/") and root in present:
                drawn[root].append(_most(bodies))
        for (namespace, key), bodies in present.items():
            if key.startswith("pods/") and (namespace, _root(bodies)) in present:
                continue
            pods = drawn[namespace, key]
            names = set(chain(_most(bodies), *pods))
            amounts = {
                name: max(_most(bodies).get(name, 0), sum(pod.get(name, 0) for pod in pods))
                for name in names
            }
            found.append((namespace, _traits(bodies), amounts))
        return found

    def _covers(self, limit: events.LimitSet, namespace: str) -> bool:
        if limit.reach is None:
            return namespace in limit.covers
        return self._reaches(limit.reach, namespace)

    def _reaches(self, reach: Reach, namespace: str) -> bool:
        cluster, _, name = namespace.partition("/")
        of_cluster = self.described.get(cluster) or f"!name={cluster}"
        of_namespace = self.described.get(namespace) or f"!name={name}"
        return _meets(reach.clusters, of_cluster) and _meets(reach.namespaces, of_namespace)


def _most(bodies: dict[tuple[str, int], Body]) -> Amounts:
    names = {name for body in bodies.values() for name in body.demand}
    return {name: max(body.demand.get(name, 0) for body in bodies.values()) for name in names}


def _root(bodies: dict[tuple[str, int], Body]) -> str:
    """The root that everything at the key draws from, if there is one."""
    roots = {body.root for body in bodies.values()}
    return roots.pop() if len(roots) == 1 else ""


def _traits(bodies: dict[tuple[str, int], Body]) -> Traits:
    return tuple({text for body in bodies.values() for text in body.traits or ("",)})


def _selected(selection: Selection, traits: Traits, labels: dict[str, int]) -> bool:
    return any(_meets(selection, text, labels) for text in traits)


def _meets(selection: Selection, text: str, labels: dict[str, int] | None = None) -> bool:
    items = dict(([*item.split("="), ""])[:2] for item in text.split(",") if item)
    numbers = labels or {}
    unknown = {
        one.key
        for one in selection
        if one.key not in items
        and ("!unread" in items or numbers.get(one.key, 0) > int(items.get("!read", 0)))
    }
    return all(one.key in unknown or _holds(one, items) for one in selection)


def _holds(one: Requirement, items: dict[str, str]) -> bool:
    if one.operator in ("Exists", "DoesNotExist"):
        return (one.key in items) == (one.operator == "Exists")
    return (items.get(one.key) in one.values) == (one.operator == "In")
