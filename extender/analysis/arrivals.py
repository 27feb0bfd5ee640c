"""Arrivals: the pods that got cards in a range of the log, with their times.

The log has the cards of a pod but not its request, so the request is derived from the cards. Its
types, uuids and NUMA binding are lost, and a percentage has become MiB.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from extender.settlement.allocated_devices.device_shares import is_of_claims
from ledger.core.model import events
from ledger.core.model.cards import Card, Part, Parts, Phase, Placement, Share, uuids
from ledger.core.model.state import State
from ledger.kube.requests.device_requests import (
    ANY,
    ContainerDeviceRequests,
    DeviceRequest,
    DeviceSelector,
    PodDeviceRequest,
)
from ledger.log.records import Record

Place = tuple[str, str]
"""The namespace and the key of a pod."""

Fleet = dict[str, dict[str, Card]]
"""The cards of nodes, named without their cluster, by uuid."""

FOREVER: Final = 2**63 - 1
"""The end, in µs, of what had not ended when the stretch did."""


class Arrival(msgspec.Struct):
    """A pod that got `parts` of the cards of `node` and kept them from `began` to `ended`.

    Its init containers were over at `initialised`. All times are µs of Unix time.
    """

    place: Place
    uid: str
    node: str
    parts: Parts
    began: int
    initialised: int = FOREVER
    ended: int = FOREVER


class ArrivalRecorder:
    """The arrivals of one cluster from a state on, and every card that was ever there.

    A card counts as usable all the time if it ever was, and one that was allocated for a resource
    claim as not usable, because the extender leaves it out. `unbound` counts the pods that were
    placed and then not bound, which do not count as arrivals, and neither do allocations.
    """

    def __init__(self, cluster: str, state: State) -> None:
        """Begin with the pods that have cards in a state."""
        self.fleet: Fleet = {}
        self.unbound = 0
        self._prefix = f"{cluster}/"
        self._ended: list[Arrival] = []
        self._open: dict[Place, Arrival] = {}
        self._allocated: set[tuple[str, str]] = set()
        for name, node in state.nodes.items():
            self._announce(name, (*node.cards, *node.lost))
        for name, placed_at in state.residents.items():
            for place in placed_at if name.startswith(self._prefix) else ():
                self._begin(place, state.namespaces[place[0]].placed[place[1]])

    def note(self, state: State, record: Record) -> None:
        """Take note of a record that was applied to the state."""
        for item in record.items:
            note = _NOTED.get(type(item.event))
            if note is not None:
                note(self, item.event, state, record.time)

    def arrivals(self) -> list[Arrival]:
        """Return the arrivals in the order in which they came."""
        recorded = [*self._ended, *self._open.values()]
        return sorted(recorded, key=lambda arrival: (arrival.began, arrival.place, arrival.uid))

    def _announce(self, name: str, cards: Iterable[Card]) -> None:
        if not name.startswith(self._prefix):
            return
        node = name.removeprefix(self._prefix)
        known = self.fleet.setdefault(node, {})
        for card in cards:
            if (node, card.uuid) in self._allocated:
                continue
            before = known.get(card.uuid)
            usable = card.healthy and not card.cordoned
            if before is None or usable or not before.healthy or before.cordoned:
                known[card.uuid] = card

    def _begin(self, place: Place, placed: Placement) -> None:
        node = placed.node.removeprefix(self._prefix)
        if is_of_claims(placed.parts):
            self._open.pop(place, None)
            self._allocate(node, uuids(placed.parts))
            return
        initialised = 0 if placed.initialised else FOREVER
        self._open[place] = Arrival(place, placed.uid, node, placed.parts, placed.time, initialised)

    def _allocate(self, node: str, cards: Iterable[str]) -> None:
        """Leave cards of a node out that kube-scheduler allocates."""
        known = self.fleet.get(node, {})
        for uuid in cards:
            self._allocated.add((node, uuid))
            if uuid in known:
                known[uuid] = msgspec.structs.replace(known[uuid], cordoned=True)

    def _registered(self, event: events.CardsRegistered, _: State, __: int) -> None:
        self._announce(event.node, event.cards)

    def _placed(self, event: events.Placed, _: State, time: int) -> None:
        if event.node.startswith(self._prefix):
            placed = Placement(event.uid, event.node, event.parts, {}, time)
            self._begin((event.namespace, event.key), placed)

    def _advanced(self, event: events.Advanced, _: State, time: int) -> None:
        known = self._open.get((event.namespace, event.key))
        if known is not None and event.initialised and known.initialised == FOREVER:
            known.initialised = time

    def _resized(self, event: events.Resized, _: State, __: int) -> None:
        known = self._open.get((event.namespace, event.key))
        if known is not None:
            known.parts = event.parts

    def _unplaced(self, event: events.Unplaced, _: State, __: int) -> None:
        if self._open.pop((event.namespace, event.key), None) is not None:
            self.unbound += 1

    def _released(self, event: events.Released, state: State, time: int) -> None:
        """End an arrival, unless something else at its key has ended."""
        place = event.namespace, event.key
        known = self._open.get(place)
        if known is None:
            return
        placed = state.namespaces[event.namespace].placed.get(event.key)
        if placed is None or placed.uid != known.uid or not placed.node:
            known.ended = time
            self._ended.append(self._open.pop(place))


def device_request_for(
    parts: Parts, cards: dict[str, Card], *, keep_types: bool
) -> PodDeviceRequest:
    """Return a request for what a pod got of a node's cards, of their types or of any.

    Of cards of one vendor, a container wants as much of each as it got of the one it got most of.
    """
    return PodDeviceRequest(
        tuple(
            ContainerDeviceRequests(
                part.container, Phase(part.phase), tuple(_device_requests(part, cards, keep_types))
            )
            for part in parts
        )
    )


def _device_requests(
    part: Part, cards: dict[str, Card], keep_types: bool
) -> Iterator[DeviceRequest]:
    of_vendor: dict[str, list[Share]] = {}
    for share in part.shares:
        of_vendor.setdefault(cards[share.uuid].vendor, []).append(share)
    for vendor, shares in of_vendor.items():
        types = sorted({cards[share.uuid].type for share in shares}) if keep_types else ()
        yield DeviceRequest(
            vendor,
            len(shares),
            max(share.memory for share in shares),
            0,
            max(share.cores for share in shares),
            any(share.exclusive for share in shares),
            DeviceSelector(use_types=tuple(types)) if types else ANY,
        )


_NOTED: Final[dict[type, Callable[[ArrivalRecorder, Any, State, int], None]]] = {
    events.CardsRegistered: ArrivalRecorder._registered,
    events.Placed: ArrivalRecorder._placed,
    events.Advanced: ArrivalRecorder._advanced,
    events.Resized: ArrivalRecorder._resized,
    events.Unplaced: ArrivalRecorder._unplaced,
    events.Released: ArrivalRecorder._released,
}
