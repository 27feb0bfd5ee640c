"""Announced and lost cards: what becomes of the account of a card that its node announces or not.

A card is an account that covers no namespace. A card that its node no longer announces is lost. Its
account is closed; while pods hold the card, the account stays open with limits of 0. A removed node
loses all its cards.
"""

from msgspec import structs

from ledger.core.evolve import quota_coverage
from ledger.core.evolve.line_charges import InvariantError, Postings
from ledger.core.model import accounts, events
from ledger.core.model.accounts import Line
from ledger.core.model.cards import LINES, Card, NodeCards
from ledger.core.model.qualified_names import split_qualified
from ledger.core.model.state import Account, State, drop, put


def account_of(node: str, uuid: str) -> str:
    """Name the account of a card of a qualified node."""
    cluster, name = split_qualified(node)
    return accounts.card(cluster, name, uuid)


def cards_registered(state: State, event: events.CardsRegistered, time: int) -> Postings:
    """Apply an announcement: open the lines of new cards; the limits of lost cards become 0."""
    before = state.nodes.get(event.node)
    _index_node(state, event.node)
    for card, numbers in zip(event.cards, event.lines, strict=True):
        name = account_of(event.node, card.uuid)
        opened = map(Line, numbers, LINES, card.limits())
        lines = quota_coverage.set_lines(state, name, opened)
        quota_coverage.put_account(state, name, Account((), lines, event.version))
        put(state, state.card_lines, (event.node, card.uuid), numbers)
    kept = {card.uuid for card in event.cards}
    lost = _lose(state, event.node, [card for card in _known(before) if card.uuid not in kept])
    put(state, state.nodes, event.node, NodeCards(event.keeper, event.cards, event.version, lost))
    return []


def node_removed(state: State, event: events.NodeRemoved, time: int) -> Postings:
    """Apply the removal of a node: close the accounts of its cards, except those that pods hold."""
    before = state.nodes.get(event.node)
    if before is None:
        raise InvariantError(f"node {event.node} is not known")
    lost = _lose(state, event.node, _known(before))
    _put_node(state, event.node, NodeCards(before.keeper, (), event.version, lost, gone=True))
    return []


def close_lost(state: State, name: str) -> None:
    """Close the accounts of a node's lost cards that no pod holds any more."""
    node = state.nodes[name]
    if node.lost or node.gone:
        _put_node(state, name, structs.replace(node, lost=_lose(state, name, node.lost)))


def _known(node: NodeCards | None) -> tuple[Card, ...]:
    return (*node.cards, *node.lost) if node is not None else ()


def _lose(state: State, node: str, gone: list[Card] | tuple[Card, ...]) -> tuple[Card, ...]:
    """Close the accounts of cards that no pod holds; return those that pods still hold."""
    held = []
    for card in gone:
        numbers = state.card_lines[node, card.uuid]
        if any(state.used[line] for line in numbers):
            held.append(card)
        else:
            quota_coverage.drop_account(state, account_of(node, card.uuid))
            drop(state, state.card_lines, (node, card.uuid))
        quota_coverage.set_limits(state, numbers, 0)
    return tuple(held)


def _index_node(state: State, node: str) -> None:
    if node not in state.residents:
        put(state, state.residents, node, {})


def _put_node(state: State, name: str, node: NodeCards) -> None:
    """Store a node, or drop one that is gone and whose cards no pod holds."""
    if node.gone and not node.lost and not state.residents[name]:
        drop(state, state.nodes, name)
        drop(state, state.residents, name)
        drop(state, state.claims, name)
    else:
        put(state, state.nodes, name, node)
