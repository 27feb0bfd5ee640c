"""Devices: the slots of this node's cards, as the kubelet counts them."""

from collections.abc import Iterable, Sequence
from typing import Final

from ledger.core.model.cards import Card
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2 import (
    Device,
    ListAndWatchResponse,
    NUMANode,
    TopologyInfo,
)
from vgpu_native.shared.change_counter import ChangeCounter

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"

ID_MAX: Final = 63
"""Most characters of a device's id."""


def device_id(uuid: str, slot: int) -> str:
    """Return the id of a slot of a card, from 0."""
    return f"{uuid}-{slot}"


def card_of(device: str) -> str:
    """Return the uuid of the card that an id is a slot of."""
    return device.rpartition("-")[0]


class AdvertisedDevices:
    """The cards that are advertised. The agent says which; the kubelet is told of each change."""

    def __init__(self, *, numa: bool = False) -> None:
        """Begin without cards; with `numa` the kubelet is told where they are."""
        self._numa = numa
        self._cards: tuple[Card, ...] = ()
        self._known: frozenset[str] = frozenset()
        self.changes = ChangeCounter()

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards, in the order of their indexes."""
        return self._cards

    @property
    def known(self) -> bool:
        """Whether it is known which cards there are. Who registers before has none."""
        return self.changes.version > 0

    def replace(self, cards: Iterable[Card]) -> None:
        """Advertise these cards. Raises ValueError for a uuid that is too long for an id."""
        found = tuple(sorted(cards, key=lambda card: (card.index, card.uuid)))
        known = {device_id(card.uuid, slot) for card in found for slot in range(card.slots)}
        for one in known:
            if len(one) > ID_MAX:
                raise ValueError(f"device id {one!r} has more than {ID_MAX} characters")
        if found != self._cards:
            self._cards, self._known = found, frozenset(known)
            self.changes.tell()

    def unknown(self, devices: Iterable[str]) -> list[str]:
        """Return those ids that are no slots of our cards."""
        return [one for one in devices if one not in self._known]

    def listed(self) -> ListAndWatchResponse:
        """Return all slots. A cordoned card takes nobody new, but whom it has may restart."""
        return ListAndWatchResponse(devices=self._slots())

    def _slots(self) -> Sequence[Device]:
        return [
            Device(
                ID=device_id(card.uuid, slot),
                health=HEALTHY if card.healthy else UNHEALTHY,
                topology=TopologyInfo(nodes=[NUMANode(ID=card.numa)]) if self._numa else None,
            )
            for card in self._cards
            for slot in range(card.slots)
        ]
