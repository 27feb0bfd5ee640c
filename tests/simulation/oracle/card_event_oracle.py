"""Card event oracle: an independent account of the pods on each card, from the log's events.

It is written from the rules and not from the code. After every event it adds up the pods of a card
again. It uses only the types of events and cards of `ledger.core`.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import msgspec

from ledger.core.model import events
from ledger.core.model.cards import Card, Parts

Place = tuple[str, str]
"""Qualified namespace and key."""

Three = tuple[int, int, int]
"""MiB, percent and containers."""

OfCards = (
    events.CardsRegistered
    | events.NodeRemoved
    | events.Placed
    | events.Advanced
    | events.Unplaced
    | events.Resized
    | events.Claimed
    | events.Withdrawn
)
"""The events that these books are about."""

_LINES: Final = ("memory", "cores", "slots")
_HANDED_OUT: Final = 2
_NOTHING: Final = (0, 0, 0)


class PlacedCards(msgspec.Struct):
    """A pod that has cards. `stage` is 0 for proposed, 1 for bound, 2 for handed out."""

    uid: str
    node: str
    parts: Parts
    stage: int

    def books(self, uuid: str) -> Three:
        """Return the amounts it takes of a card; simulated pods have no init containers."""
        shares = [share for part in self.parts for share in part.shares if share.uuid == uuid]
        return (
            sum(share.memory for share in shares),
            sum(share.cores for share in shares),
            len(shares),
        )

    def uuids(self) -> list[str]:
        """Return the cards that it has, sorted."""
        return sorted({share.uuid for part in self.parts for share in part.shares})

    def has_alone(self, uuid: str) -> bool:
        """Return whether the pod has a card exclusively."""
        shares = [share for part in self.parts for share in part.shares]
        return any(share.exclusive for share in shares if share.uuid == uuid)


class ClaimedCards(NamedTuple):
    """Cards claimed for a pod, while `victims`, by namespace, key and uid, leave."""

    wanted: PlacedCards
    victims: tuple[tuple[str, str, str], ...]


class CardEventOracle:
    """Which cards there are, by node; who is placed; and what is kept, by the pod it is for."""

    def __init__(self) -> None:
        self.cards: dict[str, dict[str, Card]] = {}
        self.placed: dict[Place, PlacedCards] = {}
        self.kept: dict[Place, ClaimedCards] = {}
        self._keepers: dict[str, str] = {}

    def copy(self) -> "CardEventOracle":
        """Return the cards and pods of now, which later events leave alone."""
        copied = CardEventOracle()
        copied.cards, copied.kept = dict(self.cards), dict(self.kept)
        copied.placed = {at: msgspec.structs.replace(held) for at, held in self.placed.items()}
        copied._keepers = dict(self._keepers)
        return copied

    def room_for(self, place: Place, wanted: PlacedCards) -> Iterator[str]:
        """Yield why the cards of a pod that would be placed so cannot be its."""
        after = self.copy()
        after.placed.pop(place, None)
        yield from after._not_to_be_given(place, wanted)
        after.placed[place] = wanted
        yield from after._is_too_much(place, wanted)

    def enter(self, event: OfCards) -> Iterator[str]:
        """Enter an event; yield a sentence for everything that is wrong with it."""
        if isinstance(event, events.CardsRegistered):
            self.cards[event.node] = {card.uuid: card for card in event.cards}
            self._keepers[event.node] = event.keeper
        elif isinstance(event, events.NodeRemoved):
            self.cards[event.node] = {}
            # Nothing is kept on a node that is gone, nor when one of its name comes.
            kept = {at: claim for at, claim in self.kept.items() if claim.wanted.node != event.node}
            self.kept = kept
        else:
            yield from self._enter_pod(event)

    def end(self, place: Place, uids: Collection[str]) -> None:
        """Forget what the pod at a place had, if it is none of those that may still exist there."""
        if place in self.placed and self.placed[place].uid not in uids:
            del self.placed[place]
        if place in self.kept and self.kept[place].wanted.uid not in uids:
            del self.kept[place]

    def limits(self) -> dict[str, Three]:
        """Return the limits of every card that a node has, or that a pod has although none does."""
        by_account = {_account(held.node, uuid): _NOTHING for held, uuid in self._taken()}
        for node, cards in self.cards.items():
            for card in cards.values():
                by_account[_account(node, card.uuid)] = card.memory, card.cores, card.slots
        return by_account

    def used(self) -> dict[tuple[str, str], int]:
        """Return the usage of every line of every card."""
        totals = dict.fromkeys(self.limits(), _NOTHING)
        for held, uuid in self._taken():
            account = _account(held.node, uuid)
            totals[account] = _plus(totals[account], held.books(uuid))
        return {
            (account, line): amount
            for account, three in totals.items()
            for line, amount in zip(_LINES, three, strict=True)
        }

    def _enter_pod(
        self,
        event: events.Placed
        | events.Advanced
        | events.Unplaced
        | events.Resized
        | events.Claimed
        | events.Withdrawn,
    ) -> Iterator[str]:
        place = event.namespace, event.key
        if isinstance(event, events.Placed):
            yield from self._place(place, event)
        elif isinstance(event, events.Unplaced):
            del self.placed[place]
        elif isinstance(event, events.Advanced):
            if event.stage < self.placed[place].stage:
                yield f"{event.key} goes back to stage {event.stage}"
            self.placed[place].stage = event.stage
        elif isinstance(event, events.Resized):
            self.placed[place].parts = event.parts
        elif isinstance(event, events.Claimed):
            wanted = PlacedCards(event.uid, event.node, event.parts, 0)
            self.kept[place] = ClaimedCards(wanted, event.victims)
        else:
            self.kept.pop(place, None)

    def _place(self, place: Place, event: events.Placed) -> Iterator[str]:
        """Give a pod cards; a placement of another scheduler keeps no rule."""
        if place in self.placed:
            yield f"{event.key} is placed a second time, on {event.node}"
        seen = event.cause == events.Cause.SEEN
        held = PlacedCards(event.uid, event.node, event.parts, int(seen))
        if not seen:
            yield from self._breaks_a_rule(place, held)
        self.placed[place] = held
        self.kept.pop(place, None)
        if not seen:
            yield from self._is_too_much(place, held)

    def _breaks_a_rule(self, place: Place, held: PlacedCards) -> Iterator[str]:
        if self._keepers.get(held.node) == "hami" and any(
            neighbour.stage < _HANDED_OUT for neighbour in self._beside(place, held.node)
        ):
            yield f"{place[1]} is placed on {held.node}, which is handing out cards to another pod"
        yield from self._not_to_be_given(place, held)

    def _beside(self, place: Place, node: str) -> list[PlacedCards]:
        """Return the other pods on a node."""
        return [held for at, held in self.placed.items() if held.node == node and at != place]

    def _not_to_be_given(self, place: Place, held: PlacedCards) -> Iterator[str]:
        """Yield the cards of a pod that cannot be given, or that another pod has alone."""
        beside = self._beside(place, held.node)
        for uuid in held.uuids():
            card = self.cards.get(held.node, {}).get(uuid)
            if card is None or not card.healthy or card.cordoned:
                yield f"{place[1]} is given {uuid} of {held.node}, which is not to be given"
            for other in (neighbour for neighbour in beside if uuid in neighbour.uuids()):
                if held.has_alone(uuid) or other.has_alone(uuid):
                    yield f"{place[1]} is on {uuid} of {held.node}, which somebody has alone"
            if any(wanted.has_alone(uuid) for _, wanted in self._kept_from(place, held.node)):
                yield f"{place[1]} is on {uuid} of {held.node}, which is kept for one pod alone"

    def _is_too_much(self, place: Place, held: PlacedCards) -> Iterator[str]:
        """Yield the cards of a pod that are over-committed, claims included."""
        for uuid in held.uuids():
            card = self.cards.get(held.node, {}).get(uuid)
            limits = (card.memory, card.cores, card.slots) if card is not None else _NOTHING
            used = self._used_of(held.node, uuid)
            for kept, wanted in self._kept_from(place, held.node):
                left = self._victims_hold(kept, held.node, uuid)
                missing = (
                    max(0, want - has) for want, has in zip(wanted.books(uuid), left, strict=True)
                )
                used = _plus(used, missing)
            if any(amount > limit for amount, limit in zip(used, limits, strict=True)):
                yield f"{place[1]} takes {uuid} of {held.node} to {used} of {limits}"

    def _kept_from(self, place: Place, node: str) -> list[tuple[ClaimedCards, PlacedCards]]:
        """Return the amounts claimed on a node for other pods than one."""
        return [
            (kept, kept.wanted)
            for at, kept in self.kept.items()
            if at != place and kept.wanted.node == node
        ]

    def _victims_hold(self, kept: ClaimedCards, node: str, uuid: str) -> Three:
        total = _NOTHING
        for namespace, key, uid in kept.victims:
            held = self.placed.get((namespace, key))
            if held is not None and (held.uid, held.node) == (uid, node):
                total = _plus(total, held.books(uuid))
        return total

    def _used_of(self, node: str, uuid: str) -> Three:
        total = _NOTHING
        for held in self.placed.values():
            if held.node == node:
                total = _plus(total, held.books(uuid))
        return total

    def _taken(self) -> Iterator[tuple[PlacedCards, str]]:
        for held in self.placed.values():
            for uuid in held.uuids():
                yield held, uuid


def _account(node: str, uuid: str) -> str:
    return f"card/{node}/{uuid}"


def _plus(left: Three, right: "Three | Iterator[int]") -> Three:
    memory, cores, slots = (amount + more for amount, more in zip(left, right, strict=True))
    return memory, cores, slots
