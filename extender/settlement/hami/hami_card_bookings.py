"""HAMi card bookings: HAMi's counts of a pod on each card, for comparison with the ledger's.

Per card the larger of the largest init container and the sum of the app containers. It counts
sidecars like any init container, so the ledger books more for pods with sidecars.
"""

from typing import NamedTuple

from ledger.core.model.cards import Part, Parts, Phase


class HamiBooking(NamedTuple):
    """MiB, percent and slots of one card."""

    memory: int = 0
    cores: int = 0
    slots: int = 0

    def plus(self, other: "HamiBooking") -> "HamiBooking":
        """Return the sum of both."""
        return HamiBooking(*(amount + more for amount, more in zip(self, other, strict=True)))


def hami_bookings(parts: Parts, *, initialised: bool) -> dict[str, HamiBooking]:
    """Return HAMi's bookings for a pod, by the uuid of the card.

    With `initialised`, its init containers have ended and there are no sidecars.
    """
    init = [part for part in parts if part.phase != Phase.APP]
    apps = _sum([part for part in parts if part.phase == Phase.APP])
    if initialised and all(part.phase == Phase.INIT for part in init):
        return apps
    peak: dict[str, HamiBooking] = dict(apps)
    for part in init:
        for uuid, booking in _sum([part]).items():
            before = peak.get(uuid, HamiBooking())
            largest = HamiBooking(*map(max, before, booking))
            peak[uuid] = largest._replace(slots=max(1, before.slots))
    return peak


def _sum(parts: list[Part]) -> dict[str, HamiBooking]:
    bookings: dict[str, HamiBooking] = {}
    for part in parts:
        for share in part.shares:
            before = bookings.get(share.uuid, HamiBooking())
            bookings[share.uuid] = before.plus(HamiBooking(share.memory, share.cores, 1))
    return bookings
