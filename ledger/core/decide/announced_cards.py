"""Announced cards: the events when a node announces its cards, or is removed."""

from ledger.core.decide import card_checks
from ledger.core.model import commands, events
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
    wrong = card_checks.wrong_cards(command.cards)
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
