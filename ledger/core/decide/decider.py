"""`decide`: returns the events of a command on a state, none when nothing is left to do, or a
denial. It changes nothing.

The charging rules are those of docs/concepts.md. In short: a key is charged the largest of its
committed object and its open attempts. An attempt ends by commit, by a newer version, by a later
try of the same request, or by proof that it was never written. Existing objects are always charged.
"""

from collections.abc import Callable
from typing import Any, Final

from ledger.core.decide import announced_cards, claim_for_preemptor, place_pod
from ledger.core.decide.observe_object import observe
from ledger.core.decide.reserve import reserve
from ledger.core.evolve import envelope_charges, quota_coverage
from ledger.core.model import accounts, commands, events
from ledger.core.model.denials import Decision, Denial, Reason
from ledger.core.model.state import Account, Hold, State
from ledger.core.model.traits import READ


def decide(state: State, command: commands.AnyCommand) -> Decision:
    """Decide a command on a state."""
    return _DECIDE[type(command)](state, command)


def _end(state: State, command: commands.End) -> Decision:
    entry = state.entry(command.namespace, command.key)
    if entry is None:
        return []
    if command.cause == events.Cause.MOVED and envelope_charges.is_barred(entry, command.uid):
        return []
    found: list[events.AnyEvent] = []
    where = (command.namespace, command.key, command.uid)
    if entry.committed is not None and entry.committed.uid == command.uid:
        found.append(
            events.Released(*where, events.OBJECT, command.cause, command.version, command.actor)
        )
    for hold in entry.holds:
        if hold.uid != command.uid:
            continue
        if command.cause == events.Cause.MOVED and hold.base >= command.version > 0:
            continue  # it may still be written on top of the observed version
        cause = command.cause if hold.base == commands.CREATE else events.Cause.FENCED
        found.append(events.Released(*where, hold.base, cause, command.version, command.actor))
    return found


def _refute(state: State, command: commands.Refute) -> Decision:
    entry = state.entry(command.namespace, command.key)
    if entry is None or not any(_is_refuted(hold, command) for hold in entry.holds):
        return []
    return [
        events.Released(
            command.namespace,
            command.key,
            command.uid,
            command.base,
            command.cause,
            0,
            command.actor,
        )
    ]


def _is_refuted(hold: Hold, command: commands.Refute) -> bool:
    if hold.uid != command.uid or hold.base != command.base:
        return False
    return command.raises in (commands.ANY_RAISES, hold.raises)


def _set_limits(state: State, command: commands.SetLimits) -> Decision:
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


def _close_account(state: State, command: commands.CloseAccount) -> Decision:
    if command.account not in state.accounts:
        return []
    return [events.AccountClosed(command.account, command.actor)]


def _register_cluster(state: State, command: commands.RegisterCluster) -> Decision:
    known = state.clusters.get(command.cluster)
    if known == command.uid:
        return []
    if known is None:
        return [events.ClusterRegistered(command.cluster, command.uid, command.actor)]
    return Denial(
        Reason.CLUSTER_NAME_TAKEN,
        f"cluster name {command.cluster} is bound to {known}, not to {command.uid}",
        transient=False,
        remedy="Give this cluster another name with --cluster",
        field="cluster",
        value=command.cluster,
    )


def _describe(state: State, command: commands.Describe) -> Decision:
    if state.described.get(command.subject, "") == command.traits:
        return []
    if command.version < state.described_at.get(command.subject, 0):
        return []
    return [events.Described(command.subject, command.traits, command.actor, command.version)]


_DECIDE: Final[dict[type, Callable[[State, Any], Decision]]] = {
    commands.Reserve: reserve,
    commands.Observe: observe,
    commands.End: _end,
    commands.Refute: _refute,
    commands.SetLimits: _set_limits,
    commands.CloseAccount: _close_account,
    commands.RegisterCluster: _register_cluster,
    commands.Describe: _describe,
    commands.RegisterCards: announced_cards.register_cards,
    commands.RemoveNode: announced_cards.remove_node,
    commands.Place: place_pod.place,
    commands.Advance: place_pod.advance,
    commands.Unplace: place_pod.unplace,
    commands.Resize: place_pod.resize,
    commands.MakeRoom: claim_for_preemptor.make_room,
    commands.Withdraw: claim_for_preemptor.withdraw,
}
