"""Offered cards: the cards in ResourceSlices, which kube-scheduler allocates for resource claims.

The slices name a card by its node and uuid. A device of several nodes has no node, so its card is
offered on every node.
"""

from collections.abc import Callable, Sequence
from typing import Final

OnOffer = Callable[[str, frozenset[str]], None]
"""Receives the local name of a node and the uuids of its offered cards."""

ANYWHERE: Final = ""
"""The node of devices that several nodes can use."""

NO_CARDS: Final = frozenset[str]()


class OfferedCards:
    """The uuids of offered cards by the local name of their node, as the slices have them now."""

    def __init__(self) -> None:
        self._by_node: dict[str, frozenset[str]] = {}
        self._on_offer: list[OnOffer] = []

    def set(self, node: str, uuids: frozenset[str]) -> None:
        """Replace the offered cards of a node; the same cards again change nothing."""
        if uuids == self._by_node.get(node, NO_CARDS):
            return
        if uuids:
            self._by_node[node] = uuids
        else:
            self._by_node.pop(node, None)
        for on_offer in self._on_offer:
            on_offer(node, uuids)

    def subscribe(self, on_offer: OnOffer) -> None:
        """Pass the offers of now, and every change, to `on_offer`."""
        self._on_offer.append(on_offer)
        for node, uuids in self._by_node.items():
            on_offer(node, uuids)

    def of(self, node: str) -> frozenset[str]:
        """Return the offered cards of a node by its local name, also those of no certain node."""
        own, any_node = self._by_node.get(node, NO_CARDS), self._by_node.get(ANYWHERE, NO_CARDS)
        return own | any_node if any_node else own

    def own(self, node: str) -> frozenset[str]:
        """Return the offered cards of a node alone, given as to `set`."""
        return self._by_node.get(node, NO_CARDS)

    def nodes(self) -> Sequence[str]:
        """Return the nodes with offered cards of their own, `ANYWHERE` among them."""
        return tuple(self._by_node)
