"""Advertised devices: the slots of this node's cards, which the kubelet counts as devices."""

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
"""Maximum length of a device id, in characters."""


def device_id(uuid: str, slot: int) -> str:
    """Return the device id of a card's slot; slots count from 0."""
    return f"{uuid}-{slot}"


def card_of(device: str) -> str:
    """Return the uuid of the card of a device id."""
    return device.rpartition("-")[0]


class AdvertisedDevices:
    """The cards that the plugin advertises. The agent sets them; the kubelet gets each change."""

    def __init__(self, *, numa: bool = False) -> None:
        """Start without cards; with `numa`, advertise each card's NUMA node."""
        self._numa = numa
        self._cards: tuple[Card, ...] = ()
        self._ids: frozenset[str] = frozenset()
        self.changes = ChangeCounter()

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards, in the order of their indexes."""
        return self._cards

    @property
    def known(self) -> bool:
        """Whether the agent has set the cards. A plugin that registers earlier advertises none."""
        return self.changes.version > 0

    def replace(self, cards: Iterable[Card]) -> None:
        """Advertise these cards. Raises ValueError for a uuid that is too long for an id."""
        ordered = tuple(sorted(cards, key=lambda card: (card.index, card.uuid)))
        ids = {device_id(card.uuid, slot) for card in ordered for slot in range(card.slots)}
        for device in ids:
            if len(device) > ID_MAX:
                raise ValueError(f"device id {device!r} has more than {ID_MAX} characters")
        if ordered != self._cards:
            self._cards, self._ids = ordered, frozenset(ids)
            self.changes.increment()

    def unknown(self, devices: Iterable[str]) -> list[str]:
        """Return the ids that are not slots of the advertised cards."""
        return [device for device in devices if device not in self._ids]

    def listed(self) -> ListAndWatchResponse:
        """Return all slots, also those of cordoned cards: their containers may restart."""
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
