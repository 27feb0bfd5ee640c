"""Unsent offers: the cards in ResourceSlices that the follower process does not have yet.

The service sends them before a question, in messages of bounded size. A question then costs time
for the nodes whose slices have changed since the last one, and not for all nodes.
"""

from collections.abc import Iterator, Set
from itertools import islice
from typing import Final

import msgspec

from extender.settlement.allocated_devices.offered_cards import OfferedCards

UUIDS_MAX: Final = 4_000
"""Most uuids of a message; one has at most 128 characters, each of at most 6 bytes of JSON."""

NODES_MAX: Final = 2_000
"""Most nodes of a message; a name has at most 253 characters."""

UNSENT_MAX: Final = 50_000
"""Most nodes with changes that are noted; with more, all offers are sent again."""


class NodeOffer(msgspec.Struct, frozen=True):
    """The uuids of the cards of a node in the slices of now, "" for any node.

    If an offer `goes_on`, the next one has further cards of the same node.
    """

    node: str
    uuids: list[str]
    goes_on: bool = False


class OfferMessage(msgspec.Struct, frozen=True, tag=True):
    """The offers of some nodes, which replace their earlier ones. `anew` ends all earlier ones."""

    offers: list[NodeOffer]
    anew: bool = False


class UnsentOffers:
    """The offers of a cluster that a receiver does not have; a new receiver has none."""

    def __init__(self, offered: OfferedCards) -> None:
        """Collect the changes of these offered cards."""
        self._offered = offered
        self._unsent: dict[str, None] = {}
        self._receiver: object = None
        offered.subscribe(self._note)

    def messages(self, receiver: object) -> Iterator[OfferMessage]:
        """Return the messages for a receiver, each time the new ones. The caller sends them all."""
        if receiver is not self._receiver:
            self._receiver = receiver
            self._unsent = dict.fromkeys(self._offered.nodes())
            yield OfferMessage([], anew=True)
        unsent, self._unsent = self._unsent, {}
        offers: list[NodeOffer] = []
        size = 0
        for node in unsent:
            for offer in _pieces(node, self._offered.own(node)):
                if offers and (size + len(offer.uuids) > UUIDS_MAX or len(offers) == NODES_MAX):
                    yield OfferMessage(offers)
                    offers, size = [], 0
                offers.append(offer)
                size += len(offer.uuids)
        if offers:
            yield OfferMessage(offers)

    def _note(self, node: str, _: Set[str]) -> None:
        if self._receiver is None:
            return
        self._unsent[node] = None
        if len(self._unsent) > UNSENT_MAX:
            self._receiver, self._unsent = None, {}


def _pieces(node: str, uuids: Set[str]) -> Iterator[NodeOffer]:
    """Yield the offers of a node, at least one."""
    rest = iter(uuids)
    for begin in range(0, max(1, len(uuids)), UUIDS_MAX):
        goes_on = begin + UUIDS_MAX < len(uuids)
        yield NodeOffer(node, list(islice(rest, UUIDS_MAX)), goes_on)
