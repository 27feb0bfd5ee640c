"""Promises: what an object was admitted for is not raised by what became known afterwards.

What a whole card, or a percentage of one, comes to rests on which cards the cluster has. When a
larger card is added, objects that are read again would be charged more although nobody changed
them, perhaps more than their quotas allow. They keep what was promised, until their cards decide.
"""

from ledger.core.evolve.placements import standing
from ledger.core.model.amounts import Amounts, covers, largest, without_zeros
from ledger.core.model.state import State


def promised_demand(
    state: State, place: tuple[str, str, str], demand: Amounts, assumed: tuple[str, ...]
) -> Amounts:
    """Return what stands of a pod that is placed, and of the rest no more than was promised.

    `place` is namespace, key and uid; `assumed` are the resources of which the demand rests on
    which cards there are.
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
    """Return a demand of which what is assumed is no more than what is known.

    Who asks for more cards than were ever promised is charged all of it; native resources, which
    have no domain, say nothing about cards.
    """
    rest = {name: amount for name, amount in demand.items() if "/" in name and name not in assumed}
    if not known or not covers(known, rest):
        return demand
    less = {name: min(demand.get(name, 0), known.get(name, 0)) for name in assumed}
    return without_zeros({**demand, **less})
