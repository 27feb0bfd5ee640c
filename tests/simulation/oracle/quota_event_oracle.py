"""Quota event oracle: an independent account of quotas, from the log's events.

It is written from the rules and not from the code. It keeps every body that may exist for a key,
and adds up the used amounts each time. It uses only the types of events of `ledger.core`.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from support.oracles.device_oracle import DeviceOracle
from support.oracles.saving_oracle import SavingOracle

from ledger.core.model import events
from ledger.core.model.amounts import Amounts
from ledger.core.model.events import AnyEvent
from ledger.core.model.traits import Reach, Requirement
from simulation.model.settings import OWNER_HOLDS_MAX, USERS
from simulation.oracle.card_event_oracle import CardEventOracle, OfCards

Key = tuple[str, str]
"""Qualified namespace and key."""

Line = tuple[str, str]
"""Account and quota key."""

OfBodies = events.Reserved | events.Raised | events.Committed | events.Observed | events.Released
"""The events that carry the possible versions of a key."""

ALONE: Final = ("", "-")
"""The roots of objects that draw from no envelope."""

NO_ROOTS: Final = ("pods", "resourceclaims.resource.k8s.io")
"""The resources whose objects have no envelope."""


class ObjectVersion(NamedTuple):
    """A possible version of an object: its demand, the envelope it counts in, its traits.

    `asked` is what of its demand was asked for and let in: less than it where an envelope became
    larger without a review.
    """

    demand: Amounts
    root: str
    texts: tuple[str, ...]
    asked: Amounts


class QuotaAccount(NamedTuple):
    """The limits and scope of an account; with `asked_only` it limits requested amounts alone."""

    covers: tuple[str, ...]
    reach: Reach | None
    selects: tuple[Requirement, ...]
    limits: dict[str, int]
    asked_only: bool = False


class _Charge(NamedTuple):
    key: str
    amounts: Amounts
    asked: Amounts
    texts: tuple[str, ...]

    def on(self, account: QuotaAccount, quota_key: str, labels: dict[str, int]) -> int:
        """Return the amount charged on a line of an account; `labels` are numbers of their keys."""
        if not _select(account.selects, self.texts, labels):
            return 0
        amounts = self.asked if account.asked_only else self.amounts
        return amounts.get(quota_key.partition(".")[2], 0)


class QuotaEventOracle:
    """Charges: per key the versions `(uid, base)` that may exist; base -1 is the stored object.

    The shares of cards are in `cards`.
    """

    def __init__(self) -> None:
        self.cards = CardEventOracle()
        self._devices = DeviceOracle()
        self._savings = SavingOracle()
        self.bodies: dict[Key, dict[tuple[str, int], ObjectVersion]] = {}
        self.accounts: dict[str, QuotaAccount] = {}
        self._described: dict[str, str] = {}
        self._labels: dict[str, int] = {}
        self._generations: dict[Key, tuple[str, int]] = {}
        self._used: dict[Line, int] = {}
        self._created: dict[tuple[str, str, str], str] = {}

    def enter(self, event: AnyEvent) -> Iterator[str]:
        """Enter an event; yield a sentence for everything that is wrong with it."""
        if isinstance(event, events.LimitSet):
            limits = {line.key: line.limit for line in event.lines}
            self.accounts[event.account] = QuotaAccount(
                event.covers, event.reach, event.selects, limits, event.asked_only
            )
            self._labels.update(event.labels)
            self._drop_labels()
        elif isinstance(event, events.AccountClosed):
            del self.accounts[event.account]
            self._drop_labels()
        elif isinstance(event, events.Described):
            self._described[event.subject] = event.traits
        elif isinstance(event, OfCards):
            yield from self.cards.enter(event)
            if isinstance(event, events.Placed | events.Advanced | events.Resized):
                self._stand((event.namespace, event.key), event.uid, event.stands)
                self._lower_envelopes(event.namespace)
        elif not isinstance(event, events.ClusterRegistered):
            yield from self._enter_body(event)
            place = event.namespace, event.key
            self.cards.end(place, {uid for uid, _ in self.bodies[place]})
        before, self._used = self._used, self._add_up()
        if isinstance(event, events.Reserved | events.Raised):
            self._grant(event)
        yield from self._rises_over_a_limit(event, before)

    def used(self) -> dict[Line, int]:
        """Return the usage of every line of every open account, and of every card."""
        return self._used | self.cards.used()

    def _drop_labels(self) -> None:
        """Keys of labels have their numbers for as long as some account selects by them."""
        named = {
            requirement.key for account in self.accounts.values() for requirement in account.selects
        }
        for key in self._labels.keys() - named:
            del self._labels[key]

    def asked(self, namespace: str, key: str) -> Amounts:
        """Return the requested amounts of the object at a key, {} if there is none."""
        bodies = self.bodies.get((namespace, key), {})
        return next((body.asked for (_, base), body in bodies.items() if base == -1), {})

    def _grant(self, event: events.Reserved | events.Raised) -> None:
        """An unreviewed change is requested with the object's next update, if all have headroom."""
        bodies = self.bodies[event.namespace, event.key]
        stored = bodies.get((event.uid, events.OBJECT))
        if stored is None or not (event.forced or self._has_room(event.namespace, event.key)):
            return
        wanted = Counter(event.demand) & Counter(stored.demand)
        bodies[event.uid, events.OBJECT] = stored._replace(asked=Counter(stored.asked) | wanted)

    def _has_room(self, namespace: str, key: str) -> bool:
        return all(
            self._used[name, line] <= limit
            for name, account in self.accounts.items()
            if self._covers(account, namespace)
            for charge in self._charges(namespace)
            if charge.key == key
            for line, limit in account.limits.items()
            if charge.on(account, line, self._labels)
        )

    def _take_along(self, namespace: str, left: str, taken: Counter[str]) -> None:
        """A pod that left its root and goes on takes the right to its part of the envelope."""
        bodies = self.bodies.get((namespace, left), {})
        for (uid, base), body in list(bodies.items()):
            if base == events.OBJECT:
                bodies[uid, base] = body._replace(asked=Counter(body.asked) - taken)

    def _enter_body(self, event: OfBodies) -> Iterator[str]:
        bodies = self.bodies.setdefault((event.namespace, event.key), {})
        where = f"{event.namespace}/{event.key} {event.uid}"
        if isinstance(event, events.Reserved):
            if (event.uid, event.base) in bodies:
                yield f"{where}: the attempt at {event.base} is charged a second time"
            yield from self._is_bounded(event)
            bodies[event.uid, event.base] = ObjectVersion(
                event.demand, event.root, event.traits, event.demand
            )
        elif isinstance(event, events.Raised):
            held = bodies[event.uid, event.base]
            bodies[event.uid, event.base] = ObjectVersion(
                event.demand, held.root, event.traits, event.demand
            )
        elif isinstance(event, events.Released):
            if bodies.pop((event.uid, event.base), None) is None:
                yield f"{where}: {event.base} is released and was not held"
        else:
            if not self._devices.changes(event):
                yield from self._status_adds_nothing(event, bodies)
            known = bodies.get((event.uid, events.OBJECT))
            attempt = bodies.get((event.uid, event.base)) if event.base >= 0 else None
            yield from self._devices.enter(
                event,
                stored=known.demand if known is not None else None,
                held=attempt.demand if attempt is not None else None,
            )
            left, taken = _drawn_from(bodies), _largest(bodies)
            _settle(bodies, event, self._savings)
            self._lower_envelopes(event.namespace)
            if isinstance(event, events.Observed) and left and _drawn_from(bodies) != left:
                self._take_along(event.namespace, left, taken)
            return
        self._lower_envelopes(event.namespace)

    def _lower_envelopes(self, namespace: str) -> None:
        """Charge the roots of a namespace less by what the devices of their pods save."""
        pods: dict[str, list[tuple[Amounts, Amounts]]] = {}
        here = [item for item in self.bodies.items() if item[0][0] == namespace]
        for place, bodies in here:
            stored = next((uid for uid, base in bodies if base == events.OBJECT), "")
            bound = self._devices.bound(place, stored) if stored else {}
            pods.setdefault(_drawn_from(bodies), []).append((_largest(bodies), bound))
        for place, bodies in here:
            for (uid, base), body in bodies.items():
                if base == events.OBJECT and place[1] in pods:
                    demand = self._savings.lowered(place, uid, body.demand, pods[place[1]])
                    asked = Counter(body.asked) & Counter(demand)
                    bodies[uid, base] = body._replace(demand=demand, asked=asked)

    def _stand(self, place: Key, uid: str, stands: Amounts) -> None:
        """Charge a pod the demand that its cards decided, instead of that of its spec."""
        bodies = self.bodies[place]
        for (body_uid, base), body in bodies.items():
            if body_uid == uid and body.demand:
                bodies[body_uid, base] = body._replace(demand={**body.demand, **stands})

    def _is_bounded(self, event: events.Reserved) -> Iterator[str]:
        """A user has a bounded number of creations open in a namespace, under any names.

        Creations of controllers are bounded per object of theirs, and are not checked here.
        """
        if event.base or not event.actor.startswith(USERS):
            return
        self._created[event.namespace, event.key, event.uid] = event.actor
        opened = [
            uid
            for (space, key, uid), actor in self._created.items()
            if (space, actor) == (event.namespace, event.actor)
            and (uid, 0) in self.bodies.get((space, key), {})
        ]
        if len(opened) >= OWNER_HOLDS_MAX and not event.forced:
            many = len(opened) + 1
            yield f"{event.actor} has {many} creations open in {event.namespace}"

    def _status_adds_nothing(
        self,
        event: events.Committed | events.Observed,
        bodies: dict[tuple[str, int], ObjectVersion],
    ) -> Iterator[str]:
        """Of two versions of one spec, the later one is charged no more than the earlier."""
        place = event.namespace, event.key
        spec = event.uid, event.generation
        stored = bodies.get((event.uid, events.OBJECT))
        if stored and event.generation and self._generations.get(place) == spec:
            known = self._savings.spec(place, event.uid, stored.demand)
            for resource, amount in (event.demand or {}).items():
                if amount > known[resource]:
                    yield f"{event.key} {event.uid}: a status alone raises {resource} to {amount}"
        self._generations[place] = spec

    def _add_up(self) -> dict[Line, int]:
        charges: dict[str, list[_Charge]] = {}
        for namespace in {space for space, _ in self.bodies}:
            charges[namespace] = list(self._charges(namespace))
        return {
            (account, key): sum(
                charge.on(quota, key, self._labels)
                for namespace, inside in charges.items()
                if self._covers(quota, namespace)
                for charge in inside
            )
            for account, quota in self.accounts.items()
            for key in quota.limits
        }

    def _charges(self, namespace: str) -> Iterator[_Charge]:
        """Yield the charges of a namespace: roots with their pods, and the rest."""
        keys = {
            key: held for (space, key), held in self.bodies.items() if space == namespace and held
        }
        drawn: dict[str, Counter[str]] = {}
        for bodies in keys.values():
            root = _drawn_from(bodies)
            if root in keys:
                drawn.setdefault(root, Counter()).update(_largest(bodies))
        for key, bodies in keys.items():
            if _drawn_from(bodies) not in keys:
                pods, asked = drawn.get(key, Counter()), Counter[str]()
                is_root = key.partition("/")[0] not in NO_ROOTS
                for body in bodies.values():
                    asked |= Counter(body.asked if is_root else body.demand)
                yield _Charge(key, dict(_largest(bodies) | pods), asked | pods, _texts(bodies))

    def _covers(self, account: QuotaAccount, namespace: str) -> bool:
        if account.reach is None:
            return namespace in account.covers
        cluster, _, name = namespace.partition("/")
        of_cluster = self._described.get(cluster) or f"!name={cluster}"
        of_namespace = self._described.get(namespace) or f"!name={name}"
        return _select(account.reach.clusters, (of_cluster,), {}) and _select(
            account.reach.namespaces, (of_namespace,), {}
        )

    def _rises_over_a_limit(self, event: AnyEvent, before: dict[Line, int]) -> Iterator[str]:
        if _may_exceed(event):
            return
        for line, used in self._used.items():
            account, key = line
            cap = self.accounts[account]
            if used <= cap.limits[key] or used <= before.get(line, 0):
                continue
            # Pods count by what they are themselves when their root goes.
            if cap.selects and isinstance(event, events.Released | events.Committed):
                continue
            yield f"{type(event).__name__} takes {key} of {account} to {used} of {cap.limits[key]}"


def _may_exceed(event: AnyEvent) -> bool:
    """Return whether an event may raise usage over a limit."""
    if isinstance(event, events.Reserved | events.Raised):
        return event.forced
    return isinstance(event, events.Observed | events.LimitSet | events.Described)


def _settle(
    bodies: dict[tuple[str, int], ObjectVersion],
    event: events.Committed | events.Observed,
    savings: SavingOracle,
) -> None:
    before = bodies.get((event.uid, events.OBJECT), ObjectVersion({}, "", (), {}))
    held = bodies.pop((event.uid, event.base), before) if event.base >= 0 else before
    asked = Counter(before.asked) + (Counter(held.demand) - Counter(before.demand))
    for uid, base in list(bodies):
        if base == events.OBJECT:
            del bodies[uid, base]
    demand = event.demand if event.demand is not None else held.demand
    root, texts = held.root, held.texts
    if isinstance(event, events.Observed):
        root, texts = event.root, event.traits
    if event.key.partition("/")[0] not in NO_ROOTS:
        place = event.namespace, event.key
        demand = savings.observed(place, event.uid, demand, before.demand)
    bodies[event.uid, events.OBJECT] = ObjectVersion(demand, root, texts, asked & Counter(demand))


def _largest(bodies: dict[tuple[str, int], ObjectVersion]) -> Counter[str]:
    most: Counter[str] = Counter()
    for body in bodies.values():
        most |= Counter(body.demand)
    return most


def _drawn_from(bodies: dict[tuple[str, int], ObjectVersion]) -> str:
    """Return the root that everything which a key may turn out to be draws from."""
    roots = {body.root for body in bodies.values()}
    root = roots.pop() if len(roots) == 1 else ""
    return "" if root in ALONE else root


def _texts(bodies: dict[tuple[str, int], ObjectVersion]) -> tuple[str, ...]:
    """Return the traits of all versions; without any version there are none."""
    return tuple(text for body in bodies.values() for text in body.texts or ("",))


def _select(
    conditions: tuple[Requirement, ...], texts: tuple[str, ...], labels: dict[str, int]
) -> bool:
    """Return whether any text meets all conditions; the simulation only asks for `In`.

    A label that was not read yet, as its number shows, may have any value.
    """
    for text in texts:
        items = dict(item.split("=", 1) for item in text.split(",") if "=" in item)
        read = int(items.get("!read", 0))
        if all(
            items[condition.key] in condition.values
            if condition.key in items
            else "!unread" in items or labels.get(condition.key, 0) > read
            for condition in conditions
        ):
            return True
    return False
