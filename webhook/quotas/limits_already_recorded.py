"""Limits already recorded: whether the ledger's limits of an account are those of a command."""

from ledger.core.evolve.quota_coverage import unnumbered
from ledger.core.model.commands import SetLimits
from ledger.core.model.state import State


def has_limits(state: State, command: SetLimits) -> bool:
    """Return whether an account already has the limits of a command."""
    known = state.accounts.get(command.account)
    if known is None or known.asked_only != command.asked_only:
        return False
    if unnumbered(state, known.selects):
        return False
    if (known.reach, known.selects) != (command.reach, command.selects):
        return False
    if command.reach is None and known.covers != command.covers:
        return False
    return {key: state.limit[line] for key, line in known.lines.items()} == command.limits
