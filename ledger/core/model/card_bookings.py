"""Card bookings: the amounts that a pod books on each card, and its exclusive cards and instances.

A pod books on each card the most that runs there at once, by the Kubernetes rule: init containers
one after the other, beside the sidecars that began before them, then sidecars and app containers
together.
"""

from typing import NamedTuple

from ledger.core.model.cards import Part, Parts, Phase, Share


class Booking(NamedTuple):
    """The amounts that a pod books on one card, in the order of `LINES`."""

    memory: int = 0
    cores: int = 0
    slots: int = 0


Bookings = dict[str, Booking]
"""By the uuid of the card."""


class PartsSummary(NamedTuple):
    """The questions that several checks ask of the same parts, answered once.

    `uuids` are the cards that parts name, in order, and `exclusive` those that they hold alone.
    `bookings` include the init containers.
    `is_ordered` is False when an init container or sidecar comes after an app container.
    """

    parts: Parts
    shares: list[Share]
    uuids: dict[str, None]
    exclusive: set[str]
    bookings: Bookings
    is_ordered: bool


def booked(parts: Parts, *, initialised: bool = False) -> Bookings:
    """Return the bookings of parts on each card; without init containers when they have ended."""
    running: Bookings = {}
    peak: Bookings = {}
    for part in parts:
        if part.phase == Phase.INIT:
            if not initialised:
                _raise(peak, _beside(running, part))
            continue
        running = _beside(running, part)
        _raise(peak, running)
    return peak


def summarize(parts: Parts) -> PartsSummary:
    """Return the summary of parts; its size and amounts may be invalid still."""
    shares = [share for part in parts for share in part.shares]
    apps = [part.phase == Phase.APP for part in parts]
    return PartsSummary(
        parts,
        shares,
        dict.fromkeys(share.uuid for share in shares),
        {share.uuid for share in shares if share.exclusive},
        booked(parts),
        apps == sorted(apps),
    )


def exclusive_on(parts: Parts, *, initialised: bool = False) -> set[str]:
    """Return the uuids of the cards that these parts hold exclusively."""
    return {
        share.uuid
        for part in parts
        if not (initialised and part.phase == Phase.INIT)
        for share in part.shares
        if share.exclusive
    }


def instances(parts: Parts, uuid: str, *, initialised: bool = False) -> set[tuple[int, int]]:
    """Return where on a card the instances of these parts lie, as `(start, size)`."""
    return {
        (share.start, share.size)
        for part in parts
        if not (initialised and part.phase == Phase.INIT)
        for share in part.shares
        if share.uuid == uuid and share.profile
    }


def overlap(left: tuple[int, int], right: tuple[int, int]) -> bool:
    """Return whether two instances, `(start, size)`, have a slice in common."""
    return left[0] < right[0] + right[1] and right[0] < left[0] + left[1]


def _beside(running: Bookings, part: Part) -> Bookings:
    """Return the bookings when a part runs beside others."""
    if not part.shares:
        return running
    bookings = dict(running)
    for share in part.shares:
        memory, cores, slots = bookings.get(share.uuid, Booking())
        bookings[share.uuid] = Booking(memory + share.memory, cores + share.cores, slots + 1)
    return bookings


def _raise(peak: Bookings, bookings: Bookings) -> None:
    for uuid, booking in bookings.items():
        before = peak.get(uuid)
        peak[uuid] = booking if before is None else _larger(before, booking)


def _larger(left: Booking, right: Booking) -> Booking:
    return Booking(*map(max, left, right))
