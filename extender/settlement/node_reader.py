"""Reading nodes: what one says of its cards, and whether somebody still answers for them. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import structs

from extender.settlement.overcommit import CardScaling, scaled_cards
from ledger.core.model import cards
from ledger.core.model.cards import HAMI, OWN, Card
from ledger.kube.api.objects import ApiNode
from ledger.kube.hami import annotation_names
from ledger.kube.hami.handshake import handshake_alive
from ledger.kube.hami.node_annotations import NodeAnnouncement, read_announcement
from ledger.kube.vendors.vendors import NVIDIA, Vendor

_NVIDIA: Final = NVIDIA.name


class NodeRules(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes are read: whose cards count, who keeps nodes that do not say so, and scaling."""

    vendors: tuple[Vendor, ...] = (NVIDIA,)
    keeper: str = HAMI
    scalings: tuple[CardScaling, ...] = ()


class NodeReading(msgspec.Struct, frozen=True):
    """What a node said last, at a version.

    `allocatable` counts, by vendor, what its kubelet has to allocate; a vendor that the kubelet
    does not name is not in it. `lock` is HAMi's, see `ledger.kube.hami.node_lock`.
    """

    name: str
    version: int
    announced: NodeAnnouncement
    ready: bool
    allocatable: dict[str, int]
    handshake: str | None = None
    lock: str | None = None

    def is_uncertain(self) -> bool:
        """Return whether time alone may change what is thought of its cards."""
        return not self.ready or (self.handshake is not None and not self.allocatable.get(_NVIDIA))


def read(node: ApiNode, rules: NodeRules) -> NodeReading:
    """Read a node."""
    annotations = node.metadata.annotations or {}
    found = read_announcement(annotations, rules.keeper)
    if found.keeper == OWN:
        counted, warning = scaled_cards(
            found.cards, node.metadata.name, annotations, rules.scalings
        )
        found = structs.replace(found, cards=counted, warning=warning or found.warning)
    return NodeReading(
        node.metadata.name,
        node.metadata.version(),
        found,
        node.is_ready(),
        _allocatable(node.status.allocatable or {}, rules.vendors),
        annotations.get(annotation_names.HANDSHAKE),
        annotations.get(annotation_names.LOCK),
    )


def cards_of(
    reading: NodeReading, known: cards.NodeCards | None, now: datetime, *, lost: bool
) -> tuple[str, tuple[Card, ...]] | None:
    """Return the keeper and the cards that a node is to be registered with, None for as it is.

    `known` is how the ledger has it. Cards whose announcement is gone, or cannot be read, stay as
    they were: without the former nobody answers for them, so they are not healthy. Nor are those of
    a node that is `lost`, not ready for too long. `now` has a time zone.
    """
    told, before = reading.announced, _cards(known)
    if told.problem:
        found, keeper = before, known.keeper if known is not None else told.keeper
        present: Sequence[str] = tuple({card.vendor for card in before})
    else:
        found, keeper = told.cards, told.keeper
        present = told.vendors
        found += tuple(card for card in before if card.vendor not in present)
    if not found and not before:
        return None
    answering = {vendor for vendor in present if not lost and _answers(reading, vendor, now)}
    return keeper, tuple(_as_known(card, card.vendor in answering) for card in found)


def _cards(known: cards.NodeCards | None) -> tuple[Card, ...]:
    return known.cards if known is not None else ()


def _as_known(card: Card, is_answered_for: bool) -> Card:
    return card if is_answered_for or not card.healthy else structs.replace(card, healthy=False)


def _answers(reading: NodeReading, vendor: str, now: datetime) -> bool:
    """Return whether somebody on the node answers for a vendor's cards.

    A kubelet that names the resource and has none of it to allocate has lost the device plugin.
    """
    allocatable = reading.allocatable.get(vendor)
    if allocatable == 0:
        return False
    return vendor != _NVIDIA or handshake_alive(reading.handshake, now, allocatable or 0)


def _allocatable(said: Mapping[str, str | int], vendors: Sequence[Vendor]) -> dict[str, int]:
    return {
        vendor.name: int(str(said[vendor.count]))
        for vendor in vendors
        if vendor.count in said and str(said[vendor.count]).isdecimal()
    }
