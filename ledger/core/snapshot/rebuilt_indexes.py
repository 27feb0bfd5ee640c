"""Rebuilt indexes: what a snapshot leaves out because keys, nodes and placements decide it."""

from collections.abc import Iterable

from ledger.core.evolve.announced_and_lost_cards import account_of
from ledger.core.evolve.envelope_charges import NO_DRAW, drawn_from, with_pod
from ledger.core.model.cards import CORES, MEMORY, SLOTS, NodeCards, Placement
from ledger.core.model.state import Draw, Entry, Hold, State


def add_draw(
    draws: dict[str, Draw], members: dict[str, dict[str, None]], key: str, entry: Entry
) -> None:
    """Add a pod to the draw and the members of its root, if it draws from one."""
    root = drawn_from(entry)
    if not root:
        return
    draws[root] = with_pod(draws.get(root, NO_DRAW), entry)
    members.setdefault(root, {})[key] = None


def open_creations(holds: Iterable[Hold]) -> dict[str, int]:
    """Return how many open CREATE holds each owner has."""
    owners = dict[str, int]()
    for hold in holds:
        if hold.base == 0 and hold.owner:
            owners[hold.owner] = owners.get(hold.owner, 0) + 1
    return owners


def index_cards(
    state: State, nodes: dict[str, NodeCards], placed: dict[str, dict[str, Placement]]
) -> None:
    """Set the nodes of a state that has its accounts, and index their cards and pods.

    Raises KeyError when a card has no account, or a pod is on an unknown node.
    """
    state.nodes = nodes
    for name, node in nodes.items():
        for card in (*node.cards, *node.lost):
            numbers = state.accounts[account_of(name, card.uuid)].lines
            state.card_lines[name, card.uuid] = numbers[MEMORY], numbers[CORES], numbers[SLOTS]
    state.residents = {name: {} for name in nodes}
    for name, placements in placed.items():
        for key, placement in placements.items():
            if placement.node:
                state.residents[placement.node][name, key] = None
