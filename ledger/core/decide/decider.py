"""Decider: `decide` returns the events of a command on a state, none when nothing is left to do, or
a denial. It changes nothing. Each command has its handler in a file of this package; `HANDLERS` has
them by the type of the command.

The charging rules are those of docs/concepts.md. In short: a key is charged the largest of its
committed object and its open attempts. An attempt ends by commit, by a newer version, by a later
try of the same request, or by proof that it was never written. Existing objects are always charged.
"""

from collections.abc import Callable
from typing import Any, Final

from ledger.core.decide import (
    change_namespace_labels,
    end_object,
    register_cluster_name,
    set_quota_limits,
)
from ledger.core.decide.cards import (
    advance_placement,
    claim_for_preemptor,
    place_pod,
    register_node_cards,
    resize_placed_pod,
    unplace_pod,
)
from ledger.core.decide.observe_object import observe
from ledger.core.decide.reserve import reserve
from ledger.core.model import commands
from ledger.core.model.denials import Decision
from ledger.core.model.state import State


def decide(state: State, command: commands.AnyCommand) -> Decision:
    """Decide a command on a state."""
    return HANDLERS[type(command)](state, command)


HANDLERS: Final[dict[type, Callable[[State, Any], Decision]]] = {
    commands.Reserve: reserve,
    commands.Observe: observe,
    commands.End: end_object.end,
    commands.Refute: end_object.refute,
    commands.SetLimits: set_quota_limits.set_limits,
    commands.CloseAccount: set_quota_limits.close_account,
    commands.RegisterCluster: register_cluster_name.register_cluster,
    commands.Describe: change_namespace_labels.describe,
    commands.RegisterCards: register_node_cards.register_cards,
    commands.RemoveNode: register_node_cards.remove_node,
    commands.Place: place_pod.place,
    commands.Advance: advance_placement.advance,
    commands.Unplace: unplace_pod.unplace,
    commands.Resize: resize_placed_pod.resize,
    commands.MakeRoom: claim_for_preemptor.make_room,
    commands.Withdraw: claim_for_preemptor.withdraw,
}
