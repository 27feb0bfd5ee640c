"""Admitted demand: an object keeps the amounts it was admitted for when larger cards are added.

The MiB of a whole card, or of a percentage of one, depend on the cards of the cluster. Without this
rule, unchanged objects would be charged more after a larger card is added, perhaps more than their
quotas allow. They keep the amounts that they were admitted for until they are placed on cards, or
until their resource claims are allocated.
"""

from ledger.core.evolve.placement_charges import standing
from ledger.core.model.amounts import Amounts, covers, largest, without_zeros
from ledger.core.model.devices import Devices
from ledger.core.model.state import State


def promised_demand(
    state: State,
    place: tuple[str, str, str],
    demand: Amounts,
    assumed: tuple[str, ...],
    devices: Devices | None = None,
) -> Amounts:
    """Return the demand of an object, with assumed amounts no larger than when it was admitted.

    For a pod on cards, the placement decides, and for an object with devices its allocation.
    `place` is namespace, key and uid. `assumed` are the resources whose demand depends on the
    current cards of the cluster. `devices` are those of the object, None for the recorded ones.
    """
    namespace, key, uid = place
    entry = state.entry(namespace, key)
    if entry is None:
        return demand
    demand = standing(state.namespaces[namespace], key, uid, demand)
    stored = entry.committed
    is_stored = stored is not None and stored.uid == uid
    if devices is None and stored is not None and is_stored:
        devices = stored.devices
    if not assumed or devices:
        return demand
    known: Amounts = {}
    if stored is not None and is_stored and stored.bound is not None:
        known = stored.bound
    for body in entry.bodies():
        if body.uid == uid:
            known = largest(known, body.demand)
    return _lowered(demand, known, assumed)


def _lowered(demand: Amounts, known: Amounts, assumed: tuple[str, ...]) -> Amounts:
    """Return the demand with assumed amounts lowered to the known ones.

    A pod that requests more of another resource than it was admitted for keeps its demand. Native
    resources, which have no domain, are not compared.
    """
    rest = {name: amount for name, amount in demand.items() if "/" in name and name not in assumed}
    if not known or not covers(known, rest):
        return demand
    less = {name: min(demand.get(name, 0), known.get(name, 0)) for name in assumed}
    return without_zeros({**demand, **less})
