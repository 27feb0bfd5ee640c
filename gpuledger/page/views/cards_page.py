"""Cards: the nodes with their cards, the promised amounts of each, and the pods that have them.

The page needs the right to list cards in all namespaces. Pods of namespaces whose holders the
viewer may not list are counted, and not named.
"""

from collections.abc import Container, Iterable
from enum import StrEnum
from typing import Final

import msgspec

from gpuledger.page.card_grid.card_bars import CardBar, card_bars
from gpuledger.page.card_grid.card_nodes import (
    CardFilter,
    NodeOfCards,
    card_nodes,
    card_states,
)
from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.page_request import PageRequest
from projections.api.query_parameters import InvalidParameter
from projections.queries.card_usage import CardUsage
from projections.queries.pods_on_cards import PodOnCard, PodsByCard, pods_on_cards
from projections.queries.totals.card_totals import CardTotals, totals_of

NODES_SHOWN: Final = 20
"""Nodes of a page."""

CARDS_SHOWN: Final = 32
"""Most cards of a node on the page."""

PODS_SHOWN: Final = 8
"""Most pods of a card on the page."""

NAMESPACES_ASKED: Final = 16
"""Most namespaces of pods whose rights are reviewed for a page; other pods are not named."""

TYPES_SHOWN: Final = 50
"""Most types in the summary."""


class CardState(StrEnum):
    """The states by which cards can be filtered."""

    ANNOUNCED = "announced"
    UNHEALTHY = "unhealthy"
    CORDONED = "cordoned"
    LOST = "lost"
    GONE = "gone"
    DRA = "dra"


_UNNAMED: Final = (CardState.ANNOUNCED, CardState.DRA)
"""States without a word in a cell: the usual one, and that of cards with a driver."""


class TypeSummary(msgspec.Struct, frozen=True):
    """The cards of one type; `largest` of the totals is the largest hole, in MiB."""

    type: str
    totals: CardTotals


class CardCell(msgspec.Struct, frozen=True):
    """A card with its bars, its states other than announced, and its pods.

    `driver` is that of the card's ResourceSlice, "" where it has none. `others` pods are of
    namespaces that the viewer may not read; `more` are left out for space.
    """

    card: CardUsage
    bars: tuple[CardBar, ...]
    states: tuple[str, ...]
    driver: str
    pods: list[PodOnCard]
    others: int
    more: int


class CardNode(msgspec.Struct, frozen=True):
    """A node with its cards; `more` cards are left out."""

    cluster: str
    node: str
    cells: list[CardCell]
    more: int


class Cards(msgspec.Struct, frozen=True, kw_only=True):
    """The page: a summary on the first page, and some nodes.

    `is_complete`: the summary has all cards of the filter. `names_hidden`: pods are counted that
    the viewer may not read. `is_unfiltered`: without nodes, the ledger has no cards. `has_slices`:
    shown cards are in ResourceSlices. `slices_unknown`: the filter is for them, and they are not
    known.
    """

    wanted: CardFilter
    states: tuple[str, ...] = tuple(CardState)
    summary: list[TypeSummary]
    is_complete: bool
    nodes: list[CardNode]
    has_clusters: bool
    is_first: bool
    is_unfiltered: bool
    next: str
    names_hidden: bool
    has_slices: bool
    slices_unknown: bool


async def cards(request: PageRequest) -> Cards:
    """Return the nodes of the filter. Raises PageError and InvalidParameter."""
    await request.require("cards")
    wanted = CardFilter(
        cluster=request.cluster,
        node_prefix=request.text("node"),
        type=request.text("type"),
        state=_state(request),
    )
    after = request.text("after")
    there = await card_nodes(
        request.view,
        request.position,
        wanted,
        after=after,
        nodes_max=NODES_SHOWN,
        offers=request.source.offers,
    )
    names = {f"{node.cluster}/{node.node}" for node in there.nodes}
    pods = await pods_on_cards(request.view, request.position, names)
    readable = await _readable(request, pods)
    nodes = [_node(node, pods, readable) for node in there.nodes]
    return Cards(
        wanted=wanted,
        summary=[] if after else _summary(card for card in there.read if wanted.takes(card)),
        is_complete=there.is_all,
        nodes=nodes,
        has_clusters=len({card.cluster for card in there.read}) > 1,
        is_first=not after,
        is_unfiltered=not after and wanted == CardFilter(),
        next=there.next,
        names_hidden=any(cell.others for node in nodes for cell in node.cells),
        has_slices=any(cell.driver for node in nodes for cell in node.cells),
        slices_unknown=wanted.state == CardState.DRA
        and bool(there.read)
        and all(card.offered_by is msgspec.UNSET for card in there.read),
    )


def _state(request: PageRequest) -> str:
    """Return the state of the filter, "" for any. Raises InvalidParameter."""
    state = request.text("state")
    if state and state not in tuple(CardState):
        words = ", ".join(CardState)
        raise InvalidParameter("state", state, message=f"it is none of {words}")
    return state


async def _readable(request: PageRequest, pods: PodsByCard) -> Container[str]:
    """Return the namespaces whose pods the viewer may read."""
    there = {pod.namespace for residents in pods.values() for pod in residents}
    if await request.may("holders"):
        return there
    asked = sorted(there)[:NAMESPACES_ASKED]
    return {name for name in asked if await request.may("holders", name)}


def _summary(cards: Iterable[CardUsage]) -> list[TypeSummary]:
    """Return the totals of each type, those with most cards first."""
    by_type: dict[str, list[CardUsage]] = {}
    for card in cards:
        by_type.setdefault(card.type, []).append(card)
    ordered = sorted(by_type.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        TypeSummary(name, totals_of(of_type, is_complete=True))
        for name, of_type in ordered[:TYPES_SHOWN]
    ]


def _node(node: NodeOfCards, pods: PodsByCard, readable: Container[str]) -> CardNode:
    shown = sorted(node.cards, key=lambda card: (card.index, card.uuid))[:CARDS_SHOWN]
    qualified = f"{node.cluster}/{node.node}"
    cells = [_cell(card, pods.get((qualified, card.uuid), []), readable) for card in shown]
    return CardNode(node.cluster, node.node, cells, len(node.cards) - len(shown))


def _cell(card: CardUsage, residents: list[PodOnCard], readable: Container[str]) -> CardCell:
    own = [pod for pod in residents if pod.namespace in readable]
    return CardCell(
        card,
        card_bars(card),
        tuple(state for state in card_states(card) if state not in _UNNAMED),
        "" if card.driver is msgspec.UNSET else card.driver,
        own[:PODS_SHOWN],
        len(residents) - len(own),
        max(0, len(own) - PODS_SHOWN),
    )


CARDS: Final = PageDefinition(
    path="/cards", title="Cards", template="cards.html", view=cards, navigation="Cards"
)
