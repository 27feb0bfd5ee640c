"""Device bounds: what was charged for an object before resource claims gave it devices.

The charge of an object falls when its claims are allocated, because an allocation usually takes
less than the most that its requests could take. The bound is kept, so that the end of an
allocation, which returns the charge to it, is not taken for an unreviewed rise.

The **saving** of a pod is its bound less its charge. The savings of a root's pods lower the
envelope of the root, to no less than what the pods take. It rises only with the envelope of the
spec. So room that was saved, and may have been given away, is reserved before it is used again.
"""

from msgspec import structs

from ledger.core.model import events
from ledger.core.model.amounts import Amounts, covers, largest, minus, plus, rise, smallest
from ledger.core.model.state import Draw, Entry, Hold, Object


def charged(
    stored: Object | None, event: events.Committed | events.Observed, held: Amounts, demand: Amounts
) -> tuple[Amounts, Amounts | None]:
    """Return the charge and the bound of an object that an event observes with this demand.

    `stored` is the object of the key before the event, and `held` the demand of the hold that
    ends in it. A hold of an object with devices adds its increase to the bound.
    """
    if event.devices:
        return demand, _bound_before_devices(stored, event.uid, held)
    if stored is None or stored.bound is None:
        return demand, None
    envelope = with_earlier_savings(stored, event.uid, demand)
    return envelope, None if envelope == demand else demand


def _bound_before_devices(stored: Object | None, uid: str, held: Amounts) -> Amounts:
    if stored is None or stored.uid != uid:
        return held
    if stored.bound is None:
        return largest(stored.demand, held)
    return plus(stored.bound, rise(stored.demand, held))


def saved(entry: Entry) -> Amounts:
    """Return the saving of a pod."""
    stored = entry.committed
    if stored is None or stored.bound is None:
        return {}
    return rise(entry.charge, stored.bound)


def spec_envelope(stored: Object) -> Amounts:
    """Return the demand by the spec of a stored object, which savings may have lowered."""
    return stored.demand if stored.bound is None or stored.devices else stored.bound


def spec_demand(stored: Object | None, body: Object | Hold) -> Amounts:
    """Return the demand by the spec of a possible object of a key; `stored` is the stored one."""
    if stored is None or stored.uid != body.uid or stored.bound is None or stored.devices:
        return body.demand
    return plus(body.demand, rise(stored.demand, stored.bound))


def with_earlier_savings(stored: Object | None, uid: str, demand: Amounts) -> Amounts:
    """Return the envelope of a root whose spec demands this now.

    It rises by what the spec demands more than before.
    """
    if stored is None or stored.uid != uid or stored.bound is None or stored.devices:
        return demand
    return smallest(demand, plus(stored.demand, rise(stored.bound, demand)))


def lowered(stored: Object, draw: Draw) -> Object:
    """Return a root whose envelope the savings of its pods have lowered."""
    envelope = spec_envelope(stored)
    highest = largest(minus(envelope, smallest(envelope, draw.saved)), draw.charge)
    if covers(highest, stored.demand):
        return stored
    demand = smallest(stored.demand, highest)
    admitted = stored.admitted
    if admitted is not None:
        admitted = None if covers(admitted, demand) else smallest(admitted, demand)
    return structs.replace(stored, demand=demand, bound=envelope, admitted=admitted)
