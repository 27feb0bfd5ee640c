"""Card oracle: an independent model of placements, with the pods of every card in plain lists.

It follows events, predicts the usage of cards and quotas, and reports events that the ledger must
never decide. It is written from the rules and uses nothing of the core's placements.
"""

from typing import Any

from support.oracles.charging_oracle import ChargingOracle, ObjectVersion, Place

from ledger.core.model import events
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Card, Phase, Share, Stage
from ledger.core.model.events import AnyEvent

Where = tuple[str, str]
"""A node and the uuid of a card."""


class Pod:
    """A pod that is placed."""

    def __init__(self, event: events.Placed) -> None:
        self.uid, self.node, self.parts = event.uid, event.node, event.parts
        self.seen = event.cause == "seen"
        self.stage: int = Stage.BOUND if self.seen else Stage.PROPOSED
        self.initialised = False

    def running(self) -> list[list[Share]]:
        """Return the shares that run at the same time, for every time that there is."""
        moments: list[list[Share]] = []
        beside: list[Share] = []
        for part in self.parts:
            if part.phase == Phase.SIDECAR:
                beside = [*beside, *part.shares]
            elif part.phase == Phase.INIT and not self.initialised:
                moments.append([*beside, *part.shares])
        apps = [share for part in self.parts if part.phase == Phase.APP for share in part.shares]
        return [*moments, [*beside, *apps]]

    def books(self, uuid: str) -> tuple[int, int, int]:
        """Return the most that runs on a card at once: MiB, percent, containers."""
        moments = [[share for share in shares if share.uuid == uuid] for shares in self.running()]
        return (
            max(sum(share.memory for share in shares) for shares in moments),
            max(sum(share.cores for share in shares) for shares in moments),
            max(len(shares) for shares in moments),
        )

    def shares_of(self, uuid: str) -> list[Share]:
        return [share for shares in self.running() for share in shares if share.uuid == uuid]


class CardOracle(ChargingOracle):
    """Follows all events; `problems` are those that contradict a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.cards: dict[Where, Card] = {}
        self.keepers: dict[str, str] = {}
        self.pods: dict[Place, Pod] = {}
        self.problems: list[str] = []
        self.before: dict[Where, tuple[int, int, int]] = {}

    def see(self, event: AnyEvent) -> None:
        match event:
            case events.CardsRegistered():
                self._announce(event.node, event.cards)
                self.keepers[event.node] = event.keeper
            case events.NodeRemoved():
                self._announce(event.node, ())
                del self.keepers[event.node]
            case events.Claimed() | events.Withdrawn():
                pass
            case events.Placed() | events.Advanced() | events.Resized() | events.Unplaced():
                self._see_placement((event.namespace, event.key), event)
            case _:
                super().see(event)
                self._end(event)

    def used_of_card(self, where: Where) -> tuple[int, int, int]:
        node, uuid = where
        booked = [pod.books(uuid) for pod in self.pods.values() if pod.node == node]
        memory, cores, slots = (sum(amounts[at] for amounts in booked) for at in range(3))
        return memory, cores, slots

    def taken_cards(self) -> set[Where]:
        """Return the cards that any pod books anything of."""
        return {
            (pod.node, share.uuid)
            for pod in self.pods.values()
            for shares in pod.running()
            for share in shares
        }

    def _announce(self, node: str, announced: tuple[Card, ...]) -> None:
        self.cards = {where: card for where, card in self.cards.items() if where[0] != node}
        self.cards.update({(node, card.uuid): card for card in announced})

    def _end(self, event: Any) -> None:
        place = getattr(event, "namespace", ""), getattr(event, "key", "")
        pod = self.pods.get(place)
        if pod is not None and pod.uid not in {uid for uid, _ in self.bodies[place]}:
            del self.pods[place]

    def _see_placement(self, place: Place, event: Any) -> None:
        if isinstance(event, events.Placed):
            pod = Pod(event)
            if not pod.seen:
                self.problems += self._wrong(place, pod)
            self.pods[place] = pod
        elif isinstance(event, events.Unplaced):
            del self.pods[place]
            return
        elif isinstance(event, events.Advanced):
            self.pods[place].stage = event.stage
            self.pods[place].initialised = event.initialised
        else:
            self.pods[place].parts = event.parts
        quotas = self.used()
        self._restate(place, event.uid, event.stands)
        self.lower_envelopes(place[0])
        if getattr(event, "cause", "") != "seen":
            self.problems += self._over(place, quotas)

    def _wrong(self, place: Place, pod: Pod) -> list[str]:
        """Yield why a pod should not have been placed like this, sums aside."""
        problems = []
        beside = [
            other for at, other in self.pods.items() if other.node == pod.node and at != place
        ]
        if self.keepers.get(pod.node) == "hami" and any(other.stage < 2 for other in beside):
            problems.append(f"{place}: {pod.node} was busy")
        for uuid in {share.uuid for part in pod.parts for share in part.shares}:
            card = self.cards.get((pod.node, uuid))
            if card is None or not card.healthy or card.cordoned:
                problems.append(f"{place}: {uuid} of {pod.node} is not to be given")
                continue
            mine = pod.shares_of(uuid)
            theirs = [share for other in beside for share in other.shares_of(uuid)]
            if theirs and any(share.exclusive for share in (*mine, *theirs)):
                problems.append(f"{place}: {uuid} is not alone")
            if _slices(mine) & _slices(theirs):
                problems.append(f"{place}: {uuid} has overlapping instances")
            if (card.mode == "mig") != all(share.profile for share in mine):
                problems.append(f"{place}: {uuid} is not cut like this")
        return problems

    def _over(self, place: Place, quotas: dict[tuple[str, str], int]) -> list[str]:
        """Yield the cards without headroom for the pod, and the quotas that exceed their limits."""
        pod, problems = self.pods[place], []
        for uuid in {share.uuid for part in pod.parts for share in part.shares}:
            card, used = self.cards.get((pod.node, uuid)), self.used_of_card((pod.node, uuid))
            limits = (card.memory, card.cores, card.slots) if card is not None else (0, 0, 0)
            known = self.before.get((pod.node, uuid), (0, 0, 0))
            if any(
                amount > limit and amount > before
                for amount, limit, before in zip(used, limits, known, strict=True)
            ):
                problems.append(f"{place}: {uuid} is promised {used} of {limits}")
        limits_of = {
            (quota.account, line.key): line.limit
            for quota in self.limits.values()
            for line in quota.lines
        }
        for line, used_after in self.used().items():
            if used_after > quotas[line] and used_after > limits_of[line]:
                problems.append(f"{place}: {line} is {used_after} of {limits_of[line]}")
        return problems

    def remember(self) -> None:
        """Note what is used of each card, for the next event to be compared with."""
        self.before = {where: self.used_of_card(where) for where in self.taken_cards()}

    def _restate(self, place: Place, uid: str, stands: Amounts) -> None:
        """Charge a pod its placed demand; lower the envelope it draws from by the difference."""
        bodies = self.bodies[place]
        before = _most_of(bodies)
        for (body_uid, _), body in bodies.items():
            if body_uid == uid and body.demand and stands:
                body.demand = {**body.demand, **stands}
        after = _most_of(bodies)
        roots = {body.root for body in bodies.values()}
        root = (place[0], roots.pop()) if len(roots) == 1 else (place[0], "")
        for (_, base), body in self.bodies.get(root, {}).items():
            if base == events.OBJECT and root[1] not in ("", "-"):
                self._lower(root, body, before, after)

    def _lower(self, root: Place, envelope: ObjectVersion, before: Amounts, after: Amounts) -> None:
        pods = [
            _most_of(bodies)
            for (namespace, key), bodies in self.bodies.items()
            if namespace == root[0]
            and key.startswith("pods/")
            and bodies
            and {body.root for body in bodies.values()} == {root[1]}
        ]
        lowered = dict(envelope.demand)
        for name, amount in envelope.demand.items():
            saved = max(0, before.get(name, 0) - after.get(name, 0))
            if saved:
                floor = sum(pod.get(name, 0) for pod in pods)
                lowered[name] = min(amount, max(amount - saved, floor))
        envelope.demand = lowered


def _most_of(bodies: dict[tuple[str, int], ObjectVersion]) -> Amounts:
    names = {name for body in bodies.values() for name in body.demand}
    return {name: max(body.demand.get(name, 0) for body in bodies.values()) for name in names}


def _slices(shares: list[Share]) -> set[int]:
    return {at for share in shares for at in range(share.start, share.start + share.size)}
