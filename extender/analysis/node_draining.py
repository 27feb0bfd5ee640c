"""The pods of a node that would have to leave for another pod to fit.

First a single pod that suffices is searched. Then pods leave one by one, the smallest first, and
those that are not needed stay. So every pod of the answer is needed, but another answer may have
fewer pods. Priorities and disruption budgets are ignored, because they are not in the ledger.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from extender.fit.fit_after_eviction import fits_after
from extender.fit.inventory_fit import InventoryFit
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.evolve.placement_events import bookings_of
from ledger.core.model.cards import Placement
from ledger.core.model.qualified_names import local_name

TRIED_MAX: Final = 256
"""Most pods of one node that are tried."""

Residents = Mapping[tuple[str, str], Placement]
"""The pods of one node, by namespace and key."""


class Victim(msgspec.Struct, frozen=True):
    """A pod that would leave, and how many MiB of the node's cards it has."""

    namespace: str
    pod: str
    memory: int


def victims(
    fit: InventoryFit, request: SchedulingRequest, node: str, there: Residents
) -> list[Victim]:
    """Return pods of a node that leave enough room for another one; empty if none suffice."""
    ordered = sorted(there, key=lambda place: (_memory(there[place]), place))[:TRIED_MAX]
    return [
        Victim(local_name(namespace), key.partition("/")[2], _memory(there[namespace, key]))
        for namespace, key in _leaving(fit, request, node, there, ordered)
    ]


def _leaving(
    fit: InventoryFit,
    request: SchedulingRequest,
    node: str,
    there: Residents,
    ordered: Sequence[tuple[str, str]],
) -> list[tuple[str, str]]:
    def suffice(places: Sequence[tuple[str, str]]) -> bool:
        return fits_after(fit, request, node, [there[place] for place in places])

    if not suffice(ordered):
        return []
    for place in ordered:
        if suffice([place]):
            return [place]
    leaving: list[tuple[str, str]] = []
    for place in ordered:
        leaving.append(place)
        if suffice(leaving):
            break
    for place in reversed(leaving[:-1]):
        without = [one for one in leaving if one != place]
        if suffice(without):
            leaving = without
    return leaving


def _memory(placed: Placement) -> int:
    return sum(booking.memory for booking in bookings_of(placed).values())
