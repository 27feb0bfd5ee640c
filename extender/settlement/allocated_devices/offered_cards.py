"""Offered cards: the cards in ResourceSlices, which kube-scheduler allocates for resource claims.

The slices name a card by its node and uuid. A device of several nodes has no node, so its card is
offered on every node.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final

OnOffer = Callable[[str, Set[str]], None]
"""Receives the local name of a node and the uuids of its offered cards."""

ANYWHERE: Final = ""
"""The node of devices that several nodes can use."""

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class OfferedCards:
    """The offered cards by the local name of their node, as the slices have them now."""

    def __init__(self) -> None:
        self._by_node: dict[str, Mapping[str, str]] = {}
        self._on_offer: list[OnOffer] = []

    def set(self, node: str, drivers: Mapping[str, str]) -> None:
        """Replace the offered cards of a node, the names of their drivers by uuid.

        The same cards again change nothing.
        """
        if drivers == self._by_node.get(node, _NONE):
            return
        if drivers:
            self._by_node[node] = drivers
        else:
            self._by_node.pop(node, None)
        for on_offer in self._on_offer:
            on_offer(node, drivers.keys())

    def subscribe(self, on_offer: OnOffer) -> None:
        """Pass the offers of now, and every change, to `on_offer`."""
        self._on_offer.append(on_offer)
        for node, drivers in self._by_node.items():
            on_offer(node, drivers.keys())

    def drivers(self, node: str) -> Mapping[str, str]:
        """Return the drivers of the offered cards of a node by uuid, also of no certain node."""
        own, any_node = self._by_node.get(node, _NONE), self._by_node.get(ANYWHERE, _NONE)
        return {**any_node, **own} if any_node else own

    def of(self, node: str) -> Set[str]:
        """Return the offered cards of a node by its local name, also those of no certain node."""
        return self.drivers(node).keys()

    def own(self, node: str) -> Set[str]:
        """Return the offered cards of a node alone, given as to `set`."""
        return self._by_node.get(node, _NONE).keys()

    def nodes(self) -> Sequence[str]:
        """Return the nodes with offered cards of their own, `ANYWHERE` among them."""
        return tuple(self._by_node)
