"""Wording of cards: what nodes announce and where pods are placed, as people read it."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from ledger.core.model import events
from ledger.core.model.cards import Card, Parts, Share, Stage
from ledger.core.model.qualified_names import local_name

LISTED_MAX: Final = 8
"""How many cards or containers are named; the rest is counted."""

_STAGES: Final = {
    Stage.PROPOSED: "not bound yet",
    Stage.BOUND: "bound to the node",
    Stage.ALLOCATED: "the node has handed its cards out",
}


def cards_in_words(event: events.AnyEvent) -> str:
    """Return the text of an event about cards, empty for other events."""
    words = _WORDS.get(type(event))
    return words(event) if words is not None else ""


def _announced(event: events.CardsRegistered) -> str:
    count = len(event.cards)
    ill = [card for card in event.cards if not card.healthy]
    closed = [card for card in event.cards if card.cordoned]
    facts = (
        f"{count} card{'' if count == 1 else 's'}, kept by {event.keeper}",
        f"not healthy: {_uuids(ill)}" if ill else "",
        f"cordoned: {_uuids(closed)}" if closed else "",
    )
    return "; ".join(filter(None, facts))


def _placed(event: events.Placed) -> str:
    seen = "seen placed" if event.cause == events.Cause.SEEN else "placed"
    return f"{seen} on node {_node(event.node)}: {_parts(event.parts)}"


def _advanced(event: events.Advanced) -> str:
    over = "init containers are over" if event.initialised else ""
    return "; ".join(filter(None, (_STAGES[Stage(event.stage)], over)))


def _claimed(event: events.Claimed) -> str:
    victims = _some(
        (f"{namespace.partition('/')[2]}/{key}" for namespace, key, _ in event.victims),
        len(event.victims),
    )
    kept = f"kept on node {_node(event.node)}: {_parts(event.parts)}"
    return f"{kept}; while {victims} leave" if victims else kept


def _parts(parts: Parts) -> str:
    shares = [(part.container, share) for part in parts for share in part.shares]
    return _some((_share(container, share) for container, share in shares), len(shares))


def _share(container: str, share: Share) -> str:
    instance = f" as {share.profile} at {share.start}" if share.profile else ""
    alone = " alone" if share.exclusive else ""
    return f"{container} on card {share.uuid} {share.memory} MiB {share.cores} %{instance}{alone}"


def _uuids(cards: list[Card]) -> str:
    return _some((card.uuid for card in cards), len(cards))


def _some(texts: Iterable[str], count: int) -> str:
    """Join the first texts, with the number of the others."""
    shown = ", ".join(islice(texts, LISTED_MAX))
    return f"{shown} and {count - LISTED_MAX} more" if count > LISTED_MAX else shown


def _node(qualified: str) -> str:
    return local_name(qualified)


_WORDS: Final[dict[type, Callable[[Any], str]]] = {
    events.CardsRegistered: _announced,
    events.NodeRemoved: lambda event: "is gone, and its cards with it",
    events.Placed: _placed,
    events.Advanced: _advanced,
    events.Resized: lambda event: f"resized: {_parts(event.parts)}",
    events.Unplaced: lambda event: "gives its cards back",
    events.Claimed: _claimed,
    events.Withdrawn: lambda event: "no cards are kept for it any more",
}
