"""Change namespace labels: decides that a namespace or a cluster has other labels than before.

`evolve/quota_coverage.py` then moves the used amounts of the quotas that count other namespaces.
"""

from ledger.core.model import commands, events
from ledger.core.model.denials import Decision
from ledger.core.model.state import State


def describe(state: State, command: commands.Describe) -> Decision:
    """Decide that a namespace or a cluster has other labels than those known."""
    if state.described.get(command.subject, "") == command.traits:
        return []
    if command.version < state.described_at.get(command.subject, 0):
        return []
    return [events.Described(command.subject, command.traits, command.actor, command.version)]
