"""Unplace a pod: decides whether the cards of a pod are released.

The cards of a later placement of the pod stay. A pod that was observed bound keeps its cards,
unless it was observed on another node.
"""

from ledger.core.model import commands, events
from ledger.core.model.cards import Stage
from ledger.core.model.denials import Decision
from ledger.core.model.state import State


def unplace(state: State, command: commands.Unplace) -> Decision:
    """Decide the release of a pod's cards."""
    placed = state.cards_held(command.namespace, command.key, command.uid)
    if placed is None or placed.node != command.node:
        return []
    if command.version is not None and placed.version != command.version:
        return []
    if placed.stage > Stage.PROPOSED and not command.bound:
        return []
    return [
        events.Unplaced(command.namespace, command.key, command.uid, command.cause, command.actor)
    ]
