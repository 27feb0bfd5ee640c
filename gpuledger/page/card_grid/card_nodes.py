"""Card nodes: nodes with their cards, filtered by name, type and state, as of a position.

A question reads a bounded number of cards; where it stops, the next page goes on.
"""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Final

import msgspec

from ledger.core.model import accounts
from projections.queries.card_usage import DRA, CardOffers, CardUsage, cards, with_mechanisms
from projections.store.readers import ProjectionView

SCANNED_MAX: Final = 5_000
"""Most cards that are read for a page."""

AT_ONCE: Final = 250
"""Cards that are read before other tasks run."""


class CardFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The cards to show: of a cluster, of nodes whose names begin with a text, of a type and in a
    state. "" is any.

    A state is `announced`, `lost`, `gone`, `unhealthy`, `cordoned` or `dra`.
    """

    cluster: str = ""
    node_prefix: str = ""
    type: str = ""
    state: str = ""

    def takes(self, card: CardUsage) -> bool:
        """Return whether a card is of the type and in the state."""
        return self.type in ("", card.type) and self.state in ("", *card_states(card))


class NodeOfCards(msgspec.Struct, frozen=True):
    """A node with the cards that a filter takes."""

    cluster: str
    node: str
    cards: list[CardUsage]


class CardNodesPage(msgspec.Struct, frozen=True):
    """Nodes by cluster and name. `next` is the account where the next page begins, or "".

    `read` are all cards that were read, also those that the filter does not take; `is_all`: further
    cards do not follow.
    """

    nodes: list[NodeOfCards]
    read: list[CardUsage]
    next: str
    is_all: bool


def card_states(card: CardUsage) -> tuple[str, ...]:
    """Return the states of a card, of which several may hold."""
    more = (
        ("unhealthy", not card.health),
        ("cordoned", card.cordoned),
        (DRA, card.offered_by == DRA),
    )
    return (card.state, *(name for name, holds in more if holds))


async def card_nodes(
    view: ProjectionView,
    position: int,
    wanted: CardFilter,
    *,
    after: str = "",
    nodes_max: int,
    scanned_max: int = SCANNED_MAX,
    offers: CardOffers | None = None,
) -> CardNodesPage:
    """Return at most `nodes_max` nodes with cards that a filter takes, after an account."""
    read: list[CardUsage] = []
    more = after
    while len(read) < scanned_max:
        rows, more = await cards(
            view,
            position,
            limit=AT_ONCE,
            cluster=wanted.cluster,
            node_prefix=wanted.node_prefix,
            after=more,
        )
        read += with_mechanisms(rows, view, position, offers)
        if not more:
            break
        await asyncio.sleep(0)
    nodes = _nodes(read)
    if more:
        nodes = nodes[:-1]  # further cards of the last node may follow
    shown = [
        (node, taken) for node in nodes if (taken := [c for c in node.cards if wanted.takes(c)])
    ]
    last = shown[nodes_max - 1][0] if len(shown) > nodes_max else nodes[-1] if nodes else None
    goes_on = last is not None and (bool(more) or len(shown) > nodes_max)
    return CardNodesPage(
        [NodeOfCards(node.cluster, node.node, taken) for node, taken in shown[:nodes_max]],
        read,
        _account(last.cards[-1]) if goes_on and last is not None else "",
        not more,
    )


def _nodes(read: Sequence[CardUsage]) -> list[NodeOfCards]:
    return [
        NodeOfCards(cluster, node, list(there))
        for (cluster, node), there in groupby(read, lambda card: (card.cluster, card.node))
    ]


def _account(card: CardUsage) -> str:
    return accounts.card(card.cluster, card.node, card.uuid)
