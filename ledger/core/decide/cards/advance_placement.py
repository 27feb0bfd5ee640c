"""Advance a placement: decides that a placed pod is at a later stage, or is charged less."""

import msgspec

from ledger.core.model import commands, events
from ledger.core.model.denials import Decision
from ledger.core.model.state import State


def advance(state: State, command: commands.Advance) -> Decision:
    """Decide a later stage of a placement. A stage never goes back, and amounts never rise."""
    placed = state.cards_held(command.namespace, command.key, command.uid)
    if placed is None or command.node not in ("", placed.node):
        return []
    charged = state.namespaces[command.namespace].entries[command.key].charge
    known = {**charged, **placed.stands}
    less = {name: amount for name, amount in command.stands.items() if amount < known.get(name, 0)}
    after = msgspec.structs.replace(
        placed,
        stage=max(placed.stage, command.stage),
        initialised=placed.initialised or command.initialised,
        stands={**placed.stands, **less},
    )
    if after == placed:
        return []
    return [
        events.Advanced(
            command.namespace,
            command.key,
            command.uid,
            after.stage,
            after.initialised,
            after.stands,
            command.actor,
        )
    ]
