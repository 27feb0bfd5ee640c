"""Live offers: the cards in ResourceSlices of the cluster of this service, as it watches them.

The log has no slices. So the offers of now are those of every position since their last change.
"""

from collections.abc import Callable, Mapping, Set
from typing import Final

import msgspec

from extender.settlement.allocated_devices.offered_cards import OfferedCards
from gpuledger.server.follower.unsent_offers import UnsentOffers


class LiveOffers:
    """The offers of now; `unsent` are those that the follower does not have."""

    def __init__(
        self,
        cluster: str,
        offered: OfferedCards,
        *,
        is_listed: Callable[[], bool],
        position: Callable[[], int],
    ) -> None:
        """Begin before the first list of slices; `is_listed` returns whether it was read.

        `position` returns the position up to which this replica has read the log.
        """
        self.unsent: Final = UnsentOffers(offered)
        self.is_listed: Final = is_listed
        self._cluster, self._offered, self._position = cluster, offered, position
        self._since: int | None = None
        self._names = ""
        offered.subscribe(self._note)

    def hold_at(self, position: int, *, is_last: bool) -> bool:
        """Return whether the offers of now are those of a position, which may be the last one."""
        if not self.is_listed():
            return False
        if self._since is None:
            self._since = self._position()
        return is_last or position >= self._since

    def drivers(self, cluster: str, node: str) -> Mapping[str, str] | None:
        """Return the drivers of a node's cards in slices by uuid, None of another cluster."""
        return self._offered.drivers(node) if cluster == self._cluster else None

    def names(self) -> str:
        """Return all as a JSON list of `CLUSTER/NODE/UUID`, without NODE for cards of any node.

        It is kept until the next change.
        """
        if not self._names:
            listed = [
                f"{self._cluster}/{node}/{uuid}"
                for node in self._offered.nodes()
                for uuid in self._offered.own(node)
            ]
            self._names = msgspec.json.encode(listed).decode()
        return self._names

    def _note(self, _: str, __: Set[str]) -> None:
        self._since, self._names = self._position(), ""
