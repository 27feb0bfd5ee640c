"""Live offers: the cards in ResourceSlices of the cluster of this service, as it watches them."""

from collections.abc import Callable
from typing import Final

from extender.settlement.allocated_devices.offered_cards import OfferedCards
from gpuledger.server.follower.unsent_offers import UnsentOffers


class LiveOffers:
    """The offers of now; `unsent` are those that the follower does not have."""

    def __init__(self, offered: OfferedCards, *, is_listed: Callable[[], bool]) -> None:
        """Begin before the first list of slices; `is_listed` returns whether it was read."""
        self.unsent: Final = UnsentOffers(offered)
        self.is_listed: Final = is_listed
