"""Node card health: the cards that a Node announces, and which of them are unhealthy. Pure.

A card is unhealthy if its device plugin reports so, if that device plugin is not alive, or if the
node has not been ready for too long.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import structs

from extender.settlement.overcommit import CardScaling, scaled_cards
from ledger.core.model import cards
from ledger.core.model.cards import HAMI, OWN, Card
from ledger.kube.api.objects import ApiNode
from ledger.kube.hami import annotation_keys
from ledger.kube.hami.node_announcement import NodeAnnouncement, read_announcement
from ledger.kube.hami.plugin_handshake import handshake_alive
from ledger.kube.vendors.vendors import NVIDIA, Vendor

_NVIDIA: Final = NVIDIA.name


class NodeRules(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes are read: the vendors, the default keeper, and the scaling of cards."""

    vendors: tuple[Vendor, ...] = (NVIDIA,)
    keeper: str = HAMI
    scalings: tuple[CardScaling, ...] = ()


class NodeReading(msgspec.Struct, frozen=True):
    """The latest announcement of a node, at a version.

    `allocatable` is the number of devices of each vendor that the kubelet can allocate, without
    vendors that the kubelet does not list. `lock` is HAMi's, see
    `ledger.kube.hami.node_lock_annotation`.
    """

    name: str
    version: int
    announced: NodeAnnouncement
    ready: bool
    allocatable: dict[str, int]
    handshake: str | None = None
    lock: str | None = None

    def is_uncertain(self) -> bool:
        """Return whether the health of its cards may change by time alone."""
        return not self.ready or (self.handshake is not None and not self.allocatable.get(_NVIDIA))


def read(node: ApiNode, rules: NodeRules) -> NodeReading:
    """Read a node."""
    annotations = node.metadata.annotations or {}
    announced = read_announcement(annotations, rules.keeper)
    if announced.keeper == OWN:
        counted, warning = scaled_cards(
            announced.cards, node.metadata.name, annotations, rules.scalings
        )
        announced = structs.replace(announced, cards=counted, warning=warning or announced.warning)
    return NodeReading(
        node.metadata.name,
        node.metadata.version(),
        announced,
        node.is_ready(),
        _allocatable(node.status.allocatable or {}, rules.vendors),
        annotations.get(annotation_keys.HANDSHAKE),
        annotations.get(annotation_keys.LOCK),
    )


def cards_of(
    reading: NodeReading, known: cards.NodeCards | None, now: datetime, *, lost: bool
) -> tuple[str, tuple[Card, ...]] | None:
    """Return the keeper and the cards to register for a node; None if it has no cards.

    `known` is the node in the ledger. Cards without a readable announcement are kept. They are
    unhealthy if their announcement is missing, because no device plugin reports them. All cards are
    unhealthy if the node is `lost`: not ready for too long. `now` has a time zone.
    """
    announced, before = reading.announced, _cards(known)
    if announced.problem:
        current, keeper = before, known.keeper if known is not None else announced.keeper
        present: Sequence[str] = tuple({card.vendor for card in before})
    else:
        current, keeper = announced.cards, announced.keeper
        present = announced.vendors
        current += tuple(card for card in before if card.vendor not in present)
    if not current and not before:
        return None
    alive = {vendor for vendor in present if not lost and _is_plugin_alive(reading, vendor, now)}
    return keeper, tuple(_as_known(card, card.vendor in alive) for card in current)


class UnreadyNodes:
    """The nodes that are not ready, and since when."""

    def __init__(self, seconds: float) -> None:
        """Regard a node as lost that has not been ready for so many seconds."""
        self._seconds = seconds
        self._since: dict[str, float] = {}

    def is_lost(
        self, reading: NodeReading, registered: cards.NodeCards | None, clock: float
    ) -> bool:
        """Return whether a node has not been ready for too long, at this loop time in seconds.

        A node whose cards were unhealthy before this replica read it gets no further time.
        """
        if reading.ready:
            self.forget(reading.name)
            return False
        given_up = registered is not None and not any(card.healthy for card in registered.cards)
        since = self._since.setdefault(reading.name, -math.inf if given_up else clock)
        return clock - since >= self._seconds

    def forget(self, name: str) -> None:
        """Forget a node that is ready or gone."""
        self._since.pop(name, None)


def _cards(known: cards.NodeCards | None) -> tuple[Card, ...]:
    return known.cards if known is not None else ()


def _as_known(card: Card, is_alive: bool) -> Card:
    return card if is_alive or not card.healthy else structs.replace(card, healthy=False)


def _is_plugin_alive(reading: NodeReading, vendor: str, now: datetime) -> bool:
    """Return whether the device plugin of a vendor is alive on the node.

    A kubelet that lists the resource with nothing to allocate has lost the device plugin.
    """
    allocatable = reading.allocatable.get(vendor)
    if allocatable == 0:
        return False
    return vendor != _NVIDIA or handshake_alive(reading.handshake, now, allocatable or 0)


def _allocatable(listed: Mapping[str, str | int], vendors: Sequence[Vendor]) -> dict[str, int]:
    return {
        vendor.name: int(str(listed[vendor.count]))
        for vendor in vendors
        if vendor.count in listed and str(listed[vendor.count]).isdecimal()
    }
