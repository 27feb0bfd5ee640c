"""Charging oracle: an independent model of charges, written from the rules and not from the code.

It keeps every body that may exist for a key, and adds all of them up at each question.
"""

from collections import defaultdict
from itertools import chain

from support.oracles.device_oracle import DeviceOracle
from support.oracles.saving_oracle import SavingOracle

from ledger.core.model import accounts, events
from ledger.core.model.amounts import Amounts
from ledger.core.model.events import AnyEvent
from ledger.core.model.traits import Reach, Requirement, Selection, Traits

Place = tuple[str, str]
"""A namespace and a key in it."""


class ObjectVersion:
    """One thing that a key may turn out to be, and what of it was asked for."""

    def __init__(
        self, demand: Amounts, root: str, traits: Traits, asked: Amounts | None = None
    ) -> None:
        self.demand, self.root, self.traits = demand, root, traits
        self.asked = demand if asked is None else asked


class ChargingOracle:
    """Follows events and predicts the used amount of every (account, key)."""

    def __init__(self) -> None:
        self.bodies: dict[Place, dict[tuple[str, int], ObjectVersion]] = defaultdict(dict)
        self.limits: dict[str, events.LimitSet] = {}
        self.described: dict[str, str] = {}
        self.labels: dict[str, int] = {}
        self.devices = DeviceOracle()
        self.savings = SavingOracle()

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
                for namespace, _, traits, amount in self._charged(asked_only=limit.asked_only)
                if self._covers(limit, namespace) and _selected(limit.selects, traits, self.labels)
            )
            for account, limit in self.limits.items()
            for line in limit.lines
        }

    def _forget(self) -> None:
        """A key that no account selects by has no number; it gets another one next time."""
        named = {requirement.key for limit in self.limits.values() for requirement in limit.selects}
        self.labels = {key: number for key, number in self.labels.items() if key in named}

    def _see_body(self, event: AnyEvent) -> None:
        bodies = self.bodies[event.namespace, event.key]
        match event:
            case events.Reserved():
                bodies[event.uid, event.base] = ObjectVersion(
                    event.demand, event.root, event.traits
                )
                self.lower_envelopes(event.namespace)
                self._grant(bodies, event)
            case events.Raised():
                held = bodies.pop((event.uid, event.base))
                bodies[event.uid, event.base] = ObjectVersion(event.demand, held.root, event.traits)
                self.lower_envelopes(event.namespace)
                self._grant(bodies, event)
            case events.Released():
                del bodies[event.uid, event.base]
                self.lower_envelopes(event.namespace)
            case events.Committed() | events.Observed():
                left, taken = _root(bodies), _most(bodies)
                self._commit(bodies, event)
                self.lower_envelopes(event.namespace)
                if isinstance(event, events.Observed) and left != _root(bodies):
                    self._take_along(event.namespace, left, taken)

    def _grant(
        self, bodies: dict[tuple[str, int], ObjectVersion], event: events.Reserved | events.Raised
    ) -> None:
        """Observed amounts become requested with the next addition, if there is headroom."""
        stored = bodies.get((event.uid, events.OBJECT))
        if stored is None or not (event.forced or self._has_room(event.namespace, event.key)):
            return
        stored.asked = {
            name: max(stored.asked.get(name, 0), min(event.demand.get(name, 0), amount))
            for name, amount in stored.demand.items()
        }

    def _has_room(self, namespace: str, key: str) -> bool:
        used = self.used()
        return all(
            used[account, line.key] <= line.limit
            for account, limit in self.limits.items()
            if self._covers(limit, namespace)
            for space, other, traits, amounts in self._charged(asked_only=limit.asked_only)
            if (space, other) == (namespace, key) and _selected(limit.selects, traits, self.labels)
            for line in limit.lines
            if amounts.get(accounts.resource_of(line.key), 0)
        )

    def _take_along(self, namespace: str, left: str, taken: Amounts) -> None:
        """Take from a root what one of its pods goes on running with."""
        for (_, base), stored in self.bodies.get((namespace, left), {}).items():
            if base == events.OBJECT:
                stored.asked = {
                    name: amount - min(amount, taken.get(name, 0))
                    for name, amount in stored.asked.items()
                }

    def lower_envelopes(self, namespace: str) -> None:
        """Take what the devices of pods save from the envelopes of their roots."""
        pods = defaultdict[str, list[tuple[Amounts, Amounts]]](list)
        present = {place: bodies for place, bodies in self.bodies.items() if bodies}
        for place, bodies in present.items():
            stored = [uid for uid, base in bodies if base == events.OBJECT]
            bound = self.devices.bound(place, stored[0]) if stored else {}
            if place[0] == namespace and place[1].startswith("pods/"):
                pods[_root(bodies)].append((_most(bodies), bound))
        for (space, key), bodies in present.items():
            for (uid, base), body in bodies.items():
                if base == events.OBJECT and space == namespace and key in pods:
                    body.demand = self.savings.lowered((space, key), uid, body.demand, pods[key])
                    body.asked = {
                        name: min(amount, body.demand.get(name, 0))
                        for name, amount in body.asked.items()
                    }

    def _commit(
        self,
        bodies: dict[tuple[str, int], ObjectVersion],
        event: events.Committed | events.Observed,
    ) -> None:
        held = bodies.pop((event.uid, event.base), None) if event.base >= 0 else None
        stored, stored_uid = None, ""
        for uid, base in list(bodies):
            if base == events.OBJECT:
                stored, stored_uid = bodies.pop((uid, base)), uid
        same = stored if stored_uid == event.uid else None
        for problem in self.devices.enter(
            event,
            stored=None if same is None else same.demand,
            held=None if held is None else held.demand,
        ):
            raise AssertionError(problem)
        asked = _asked(same is not None, stored, held)
        if isinstance(event, events.Observed):
            body = ObjectVersion(event.demand, event.root, event.traits)
        else:
            known = held or stored
            assert known is not None
            demand = known.demand if event.demand is None else event.demand
            body = ObjectVersion(demand, known.root, known.traits)
        if event.key.partition("/")[0] not in ("pods", "resourceclaims.resource.k8s.io"):
            place = event.namespace, event.key
            charged = {} if same is None else same.demand
            body.demand = self.savings.observed(place, event.uid, body.demand, charged)
            body.asked = {
                name: min(amount, asked.get(name, 0)) for name, amount in body.demand.items()
            }
        bodies[event.uid, events.OBJECT] = body

    def _charged(self, *, asked_only: bool) -> list[tuple[str, str, Traits, Amounts]]:
        """Return everything that is charged: namespace, key, traits, amounts."""
        present = {place: bodies for place, bodies in self.bodies.items() if bodies}
        charges = []
        drawn: dict[Place, list[Amounts]] = defaultdict(list)
        for (namespace, key), bodies in present.items():
            root = (namespace, _root(bodies))
            if key.startswith("pods/") and root in present:
                drawn[root].append(_most(bodies))
        for (namespace, key), bodies in present.items():
            if key.startswith("pods/") and (namespace, _root(bodies)) in present:
                continue
            pods = drawn[namespace, key]
            own = _most_asked(bodies) if asked_only else _most(bodies)
            amounts = {
                name: max(own.get(name, 0), sum(pod.get(name, 0) for pod in pods))
                for name in set(chain(own, *pods))
            }
            charges.append((namespace, key, _traits(bodies), amounts))
        return charges

    def _covers(self, limit: events.LimitSet, namespace: str) -> bool:
        if limit.reach is None:
            return namespace in limit.covers
        return self._reaches(limit.reach, namespace)

    def _reaches(self, reach: Reach, namespace: str) -> bool:
        cluster, _, name = namespace.partition("/")
        of_cluster = self.described.get(cluster) or f"!name={cluster}"
        of_namespace = self.described.get(namespace) or f"!name={name}"
        return _meets(reach.clusters, of_cluster) and _meets(reach.namespaces, of_namespace)


def _most(bodies: dict[tuple[str, int], ObjectVersion]) -> Amounts:
    names = {name for body in bodies.values() for name in body.demand}
    return {name: max(body.demand.get(name, 0) for body in bodies.values()) for name in names}


def _most_asked(bodies: dict[tuple[str, int], ObjectVersion]) -> Amounts:
    names = {name for body in bodies.values() for name in body.asked}
    return {name: max(body.asked.get(name, 0) for body in bodies.values()) for name in names}


def _asked(is_same: bool, stored: ObjectVersion | None, held: ObjectVersion | None) -> Amounts:
    """Return the requested amounts of an observed object: those before, and those of its hold."""
    wanted = {} if held is None else held.demand
    if stored is None or not is_same:
        return wanted
    return {
        name: stored.asked.get(name, 0) + max(0, wanted.get(name, 0) - stored.demand.get(name, 0))
        for name in {*stored.asked, *wanted}
    }


def _root(bodies: dict[tuple[str, int], ObjectVersion]) -> str:
    """The root that everything at the key draws from, if there is one."""
    roots = {body.root for body in bodies.values()}
    return roots.pop() if len(roots) == 1 else ""


def _traits(bodies: dict[tuple[str, int], ObjectVersion]) -> Traits:
    return tuple({text for body in bodies.values() for text in body.traits or ("",)})


def _selected(selection: Selection, traits: Traits, labels: dict[str, int]) -> bool:
    return any(_meets(selection, text, labels) for text in traits)


def _meets(selection: Selection, text: str, labels: dict[str, int] | None = None) -> bool:
    items = dict(([*item.split("="), ""])[:2] for item in text.split(",") if item)
    numbers = labels or {}
    unknown = {
        requirement.key
        for requirement in selection
        if requirement.key not in items
        and ("!unread" in items or numbers.get(requirement.key, 0) > int(items.get("!read", 0)))
    }
    return all(
        requirement.key in unknown or _holds(requirement, items) for requirement in selection
    )


def _holds(requirement: Requirement, items: dict[str, str]) -> bool:
    if requirement.operator in ("Exists", "DoesNotExist"):
        return (requirement.key in items) == (requirement.operator == "Exists")
    return (items.get(requirement.key) in requirement.values) == (requirement.operator == "In")
