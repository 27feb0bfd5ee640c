"""Claim bookings: what a preemption claim books beside what its victims still hold."""

from collections.abc import Mapping

from ledger.core.evolve.placement_charges import bookings_of
from ledger.core.model.card_bookings import Booking, Bookings, booked
from ledger.core.model.cards import Placement, PreemptionClaim


def claimed_bookings(
    claim: PreemptionClaim, residents: Mapping[tuple[str, str], Placement]
) -> Bookings:
    """Return the kept booking of each card, given the pods of the node by namespace and key.

    The use of victims counts as theirs until they have ended.
    """
    held = _held_by_victims(claim, residents)
    return {
        uuid: Booking(*(max(0, want - has) for want, has in zip(booking, held[uuid], strict=True)))
        if uuid in held
        else booking
        for uuid, booking in booked(claim.parts).items()
    }


def _held_by_victims(
    claim: PreemptionClaim, residents: Mapping[tuple[str, str], Placement]
) -> dict[str, Booking]:
    bookings: dict[str, Booking] = {}
    for namespace, key, uid in claim.victims:
        placed = residents.get((namespace, key))
        if placed is None or placed.uid != uid:
            continue
        for uuid, booking in bookings_of(placed).items():
            there = bookings.get(uuid, Booking())
            bookings[uuid] = Booking(
                *(amount + more for amount, more in zip(there, booking, strict=True))
            )
    return bookings
