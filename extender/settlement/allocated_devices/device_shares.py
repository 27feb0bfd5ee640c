"""Device shares: the shares of a node's cards that allocated resource claims have. Pure.

A claim belongs to no container: several containers may use it. So each claim is a part of its own,
whose name no container can have.
"""

from typing import Final

from ledger.core.model import cards
from ledger.core.model.cards import Card, NodeCards, Part, Parts, Phase, Share
from ledger.core.model.devices import CLAIM_PART, Device, Devices

PART_OF_CARD: Final = (3, 4)
"""A device that is not shared is a part of its card (MIG) if it has at most so much of its memory:
no profile lies between a half and the whole."""


def is_of_claims(parts: Parts) -> bool:
    """Return whether a placement is an allocation of resource claims, and not of an extender."""
    return bool(parts) and all(part.container.startswith(CLAIM_PART) for part in parts)


def node_of(devices: Devices) -> str:
    """Return the qualified node of the first device that names a card, empty without any."""
    named = (item.node for item in devices if item.node and item.card and not item.admin)
    return next(named, "")


def parts_of_devices(devices: Devices, node: NodeCards | None, name: str) -> Parts:
    """Return the shares of a node's cards, by its qualified name, that devices are; may be empty.

    Devices for administration use no card. Cards that the node does not have are left out.
    """
    known = {card.uuid: card for card in (*node.cards, *node.lost)} if node is not None else {}
    by_claim: dict[str, list[Share]] = {}
    for item in devices:
        card = known.get(item.card)
        if card is not None and item.node == name and not item.admin:
            by_claim.setdefault(item.claim, []).append(_share(item, card))
    return tuple(
        Part(CLAIM_PART + claim, Phase.APP, tuple(shares))
        for claim, shares in sorted(by_claim.items())
    )


def _share(item: Device, card: Card) -> Share:
    """Return the share that a device has of its card.

    The driver and the device plugin may announce sizes of one card that differ by a few MiB, so a
    whole card is the announced size.
    """
    least, most = PART_OF_CARD
    if item.share:
        return Share(card.uuid, item.memory, item.cores)
    if most * item.memory > least * card.memory:
        return Share(card.uuid, card.memory, card.cores, exclusive=True)
    return Share(card.uuid, item.memory, cards.WHOLE * item.memory // max(card.memory, 1))
