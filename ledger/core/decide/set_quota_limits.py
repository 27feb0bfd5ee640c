"""Set quota limits: decides to open a quota, to change what it limits and counts, or to close it.

`evolve/quota_coverage.py` then moves the used amounts of the quotas that count other namespaces.
"""

from ledger.core.evolve import quota_coverage
from ledger.core.model import accounts, commands, events
from ledger.core.model.denials import Decision
from ledger.core.model.state import Account, State
from ledger.core.model.traits import READ


def set_limits(state: State, command: commands.SetLimits) -> Decision:
    """Decide to open a quota, or to change what it limits and counts."""
    account = state.accounts.get(command.account)
    covers = () if command.reach is not None else tuple(sorted(set(command.covers)))
    known = account.lines if account is not None else {}
    new = quota_coverage.unnumbered(state, command.selects)
    if account is not None:
        if 0 < command.version < account.version:
            return []
        limits = {key: state.limit[number] for key, number in known.items()}
        if not new and limits == command.limits and _covers_the_same(account, command, covers):
            return []
    opened, lines = len(state.names), []
    for key in sorted(command.limits):
        number = known.get(key, -1)
        if number < 0:
            number, opened = opened, opened + 1
        lines.append(accounts.Line(number, key, command.limits[key]))
    number = state.labels.get(READ, 0) + 1
    return [
        events.LimitSet(
            command.account,
            covers,
            tuple(lines),
            command.actor,
            command.version,
            command.reach,
            command.selects,
            tuple((key, number) for key in new),
            command.asked_only,
        )
    ]


def _covers_the_same(
    account: Account, command: commands.SetLimits, covers: tuple[str, ...]
) -> bool:
    if account.asked_only != command.asked_only:
        return False
    if (account.reach, account.selects) != (command.reach, command.selects):
        return False
    return command.reach is not None or account.covers == covers


def close_account(state: State, command: commands.CloseAccount) -> Decision:
    """Decide to close a quota."""
    if command.account not in state.accounts:
        return []
    return [events.AccountClosed(command.account, command.actor)]
