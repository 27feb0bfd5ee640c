"""Device bounds: what was charged for an object before resource claims gave it devices.

The charge of an object falls when its claims are allocated, because an allocation usually takes
less than the most that its requests could take. The bound is kept, so that the end of an
allocation, which returns the charge to it, is not taken for an unreviewed rise.
"""

from ledger.core.model import events
from ledger.core.model.amounts import Amounts, largest, plus, rise
from ledger.core.model.state import Object


def bound_after(
    stored: Object | None, event: events.Committed | events.Observed, held: Amounts
) -> Amounts | None:
    """Return the bound of an object as an event observes it, None if it has no devices.

    `stored` is the object of the key before the event, and `held` the demand of the hold that
    ends in it. A hold of an object with devices adds its increase to the bound.
    """
    if not event.devices:
        return None
    if stored is None or stored.uid != event.uid:
        return held
    if stored.bound is None:
        return largest(stored.demand, held)
    return plus(stored.bound, rise(stored.demand, held))
