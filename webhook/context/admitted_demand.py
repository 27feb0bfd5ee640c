"""Admitted demand: an object keeps the amounts it was admitted for when larger cards are added.

The MiB of a whole card, or of a percentage of one, depend on the cards of the cluster. Without this
rule, unchanged objects would be charged more after a larger card is added, perhaps more than their
quotas allow. They keep the amounts that they were admitted for until they are placed on cards, or
until their resource claims are allocated.

Resource claims that do not exist yet count as far as they were admitted, because their templates
may have changed since. A claim is reviewed when it is created, so it is charged then.
"""

from typing import Final

import msgspec

from ledger.core.evolve.device_bounds import spec_demand
from ledger.core.evolve.placement_charges import standing
from ledger.core.model.amounts import Amounts, covers, largest, minus, smallest, without_zeros
from ledger.core.model.devices import Devices
from ledger.core.model.state import Entry, State


class Awaited(msgspec.Struct, frozen=True, gc=False):
    """The part of a demand for resource claims that do not exist yet.

    With `unresolved`, some templates, classes or devices of claims are unknown, so the demand may
    be too small, and the charge of the object stays.
    """

    amounts: Amounts = {}
    unresolved: bool = False

    def admitted(self, demand: Amounts, charge: Amounts) -> Amounts:
        """Return a demand with this part as far as the charge of the object covers it."""
        firm = minus(demand, self.amounts)
        covered = charge if self.unresolved else smallest(charge, demand)
        return without_zeros(largest(firm, covered))

    def lowers(self, admitted: Amounts, demand: Amounts) -> bool:
        """Return whether a part of the demand is left out, because it was not admitted."""
        return self is not NOTHING_AWAITED and not covers(admitted, demand)


NOTHING_AWAITED: Final = Awaited()


def awaited_of(deferred: Amounts, *, unresolved: bool) -> Awaited:
    """Return the part of a demand for claims that do not exist yet."""
    return Awaited(deferred, unresolved) if deferred or unresolved else NOTHING_AWAITED


def promised_demand(
    state: State,
    place: tuple[str, str, str],
    demand: Amounts,
    assumed: tuple[str, ...],
    devices: Devices | None = None,
    *,
    awaited: Awaited = NOTHING_AWAITED,
) -> Amounts:
    """Return the demand of an object, with assumed amounts no larger than when it was admitted.

    For a pod on cards, the placement decides, and for an object with devices its allocation.
    `place` is namespace, key and uid. `assumed` are the resources whose demand depends on the
    current cards of the cluster. `devices` are those of the object, None for the recorded ones.
    `awaited` is the part of the demand for claims that do not exist.
    """
    namespace, key, uid = place
    entry = state.entry(namespace, key)
    if awaited is not NOTHING_AWAITED:
        demand = awaited.admitted(demand, _admitted(entry, uid))
    if entry is None:
        return demand
    demand = standing(state.namespaces[namespace], key, uid, demand)
    stored = entry.committed
    recorded = stored.devices if stored is not None and stored.uid == uid else ()
    if not assumed or (recorded if devices is None else devices):
        return demand
    known = _admitted(entry, uid, without_stored=bool(recorded))
    return _lowered(demand, known, assumed)


def _admitted(entry: Entry | None, uid: str, *, without_stored: bool = False) -> Amounts:
    """Return the amounts that an entry holds for a uid, or held before it had devices.

    The stored amounts of an object with devices are those of its allocation, which was not
    admitted. They are left out with `without_stored`.
    """
    known: Amounts = {}
    if entry is None:
        return known
    stored = entry.committed
    if stored is not None and stored.uid == uid and stored.bound is not None:
        known = stored.bound
    for body in entry.holds if without_stored else entry.bodies():
        if body.uid == uid:
            known = largest(known, spec_demand(stored, body))
    return known


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
