"""Assumed demand: an object keeps the amounts that it was admitted for when larger cards are added.

The MiB of a whole card, or of a percentage of one, depend on the cards of the cluster. When a
larger card is added, unchanged objects that are read again would be charged more, perhaps more than
their quotas allow. They keep the promised amounts until they are placed on cards.
"""

from ledger.core.evolve.placement_events import standing
from ledger.core.model.amounts import Amounts, covers, largest, without_zeros
from ledger.core.model.state import State


def promised_demand(
    state: State, place: tuple[str, str, str], demand: Amounts, assumed: tuple[str, ...]
) -> Amounts:
    """Return the demand of a pod, of assumed amounts no more than was promised.

    Where the pod is placed, the placement decides. `place` is namespace, key and uid; `assumed` are
    the resources whose demand depends on the cluster's present cards.
    """
    namespace, key, uid = place
    entry = state.entry(namespace, key)
    if entry is None:
        return demand
    demand = standing(state.namespaces[namespace], key, uid, demand)
    if not assumed:
        return demand
    known: Amounts = {}
    for body in entry.bodies():
        if body.uid == uid:
            known = largest(known, body.demand)
    return _lowered(demand, known, assumed)


def _lowered(demand: Amounts, known: Amounts, assumed: tuple[str, ...]) -> Amounts:
    """Return the demand with assumed amounts lowered to the known ones.

    A pod that asks for more cards than were promised is charged all of them. Native resources,
    which have no domain, are not compared.
    """
    rest = {name: amount for name, amount in demand.items() if "/" in name and name not in assumed}
    if not known or not covers(known, rest):
        return demand
    less = {name: min(demand.get(name, 0), known.get(name, 0)) for name in assumed}
    return without_zeros({**demand, **less})
