"""Register node cards: decides whether announced cards, or a removal, are valid and new.

`evolve/announced_and_lost_cards.py` then opens the accounts of new cards and closes those of lost
cards.
"""

from ledger.core.decide.cards import card_checks
from ledger.core.model import commands, events
from ledger.core.model.amounts import AMOUNT_MAX
from ledger.core.model.cards import Card
from ledger.core.model.denials import Decision
from ledger.core.model.state import State


def register_cards(state: State, command: commands.RegisterCards) -> Decision:
    """Decide an announcement of a node's cards."""
    known = state.nodes.get(command.node)
    if known is not None and not known.gone:
        if 0 < command.version < known.version:
            return []
        if (known.keeper, known.cards) == (command.keeper, command.cards):
            return []
    wrong = _wrong_cards(command.cards)
    if wrong:
        return card_checks.invalid(f"node {command.node}: {wrong}", "cards", command.node)
    opened = len(state.names)
    lines: list[tuple[int, int, int]] = []
    for card in command.cards:
        known_lines = state.card_lines.get((command.node, card.uuid))
        if known_lines is not None:
            lines.append(known_lines)
        else:
            lines.append((opened, opened + 1, opened + 2))
            opened += 3
    return [
        events.CardsRegistered(
            command.node,
            command.keeper,
            command.cards,
            tuple(lines),
            command.actor,
            command.version,
        )
    ]


def remove_node(state: State, command: commands.RemoveNode) -> Decision:
    """Decide the removal of a node."""
    known = state.nodes.get(command.node)
    if known is None or known.gone or 0 < command.version < known.version:
        return []
    return [events.NodeRemoved(command.node, command.actor, command.version)]


def _wrong_cards(announced: tuple[Card, ...]) -> str:
    """Return the first mistake in the cards that a node announces; empty without one."""
    if len(announced) > card_checks.SHARES_MAX:
        return f"{len(announced)} cards are more than {card_checks.SHARES_MAX}"
    if len({card.uuid for card in announced}) != len(announced):
        return "two cards have one uuid"
    for card in announced:
        if not card.uuid:
            return "a card has no uuid"
        if not all(0 <= limit <= AMOUNT_MAX for limit in card.limits()):
            return f"card {card.uuid} has limits {card.limits()}"
        if not (abs(card.index) <= AMOUNT_MAX and abs(card.numa) <= AMOUNT_MAX):
            return f"card {card.uuid} has index {card.index} and NUMA node {card.numa}"
    return ""
