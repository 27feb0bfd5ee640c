"""Decider: `decide` returns the events of a command on a state, none when nothing is left to do, or
a denial. It changes nothing. Each command has its handler here or in a file of this package.

The charging rules are those of docs/concepts.md. In short: a key is charged the largest of its
committed object and its open attempts. An attempt ends by commit, by a newer version, by a later
try of the same request, or by proof that it was never written. Existing objects are always charged.
"""

from collections.abc import Callable
from typing import Any, Final

from ledger.core.decide import (
    announced_cards,
    claim_for_preemptor,
    place_pod,
    quota_and_label_changes,
)
from ledger.core.decide.observe_object import observe
from ledger.core.decide.reserve import reserve
from ledger.core.evolve import envelope_charges
from ledger.core.model import commands, events
from ledger.core.model.denials import Decision
from ledger.core.model.state import Hold, State


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


_DECIDE: Final[dict[type, Callable[[State, Any], Decision]]] = {
    commands.Reserve: reserve,
    commands.Observe: observe,
    commands.End: _end,
    commands.Refute: _refute,
    commands.SetLimits: quota_and_label_changes.set_limits,
    commands.CloseAccount: quota_and_label_changes.close_account,
    commands.RegisterCluster: quota_and_label_changes.register_cluster,
    commands.Describe: quota_and_label_changes.describe,
    commands.RegisterCards: announced_cards.register_cards,
    commands.RemoveNode: announced_cards.remove_node,
    commands.Place: place_pod.place,
    commands.Advance: place_pod.advance,
    commands.Unplace: place_pod.unplace,
    commands.Resize: place_pod.resize,
    commands.MakeRoom: claim_for_preemptor.make_room,
    commands.Withdraw: claim_for_preemptor.withdraw,
}
