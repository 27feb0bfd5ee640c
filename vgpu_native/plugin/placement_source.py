"""What the plugin is told by the ledger: which containers were placed on this node, on what cards.

This is a port. The agent implements it from the log; tests do with lists.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ledger.core.model.cards import Share


class PlacedContainer(msgspec.Struct, frozen=True):
    """A container that was placed on this node and takes cards of it.

    `namespace` is the pod's as Kubernetes knows it, `order` the container's place in the order in
    which the kubelet allocates those of one pod: init containers and sidecars as in the spec, then
    app containers. `time` is that of the placement, µs of Unix time. `allocated` says that the
    ledger knows its cards to be handed out already.
    """

    namespace: str
    pod: str
    uid: str
    name: str
    order: int
    shares: tuple[Share, ...]
    time: int
    allocated: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Return what tells it from all others: its pod's uid and its name."""
        return self.uid, self.name

    @property
    def cards(self) -> tuple[str, ...]:
        """Return the uuids of its cards, in the order in which it sees them."""
        return tuple(share.uuid for share in self.shares)

    @property
    def exclusive(self) -> bool:
        """Return whether it has all its cards for itself."""
        return bool(self.shares) and all(share.exclusive for share in self.shares)

    def __str__(self) -> str:
        """Name it for people."""
        return f"container {self.name} of pod {self.namespace}/{self.pod} ({self.uid})"


class PlacementSource(Protocol):
    """Who was placed on this node. Answers come from memory and never fail."""

    @property
    def version(self) -> int:
        """A number that differs after every change."""

    def containers(self) -> Sequence[PlacedContainer]:
        """Return all containers with cards of pods that have not ended, in any order."""

    async def wait(self, version: int) -> None:
        """Return when the version is another than this one; it may be so already."""

    @property
    def trouble(self) -> str:
        """Why not all may be known that the ledger holds; empty while it is."""

    async def caught_up(self) -> None:
        """Return when all is known that the ledger held at the call, however long that takes."""
