"""Placement source: the containers that the ledger placed on this node, and their cards.

The agent implements it from the log; tests implement it with lists.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ledger.core.model.cards import Share


class PlacedContainer(msgspec.Struct, frozen=True):
    """A container that was placed on cards of this node.

    `namespace` is the pod's namespace in Kubernetes. `order` is the container's index in the order
    in which the kubelet allocates the containers of a pod: init containers and sidecars as in the
    spec, then app containers. `time` is the time of the placement in µs of Unix time. `allocated`
    is set when the ledger has a record that the container received its cards.
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
        """Return the unique key of the container: its pod's uid and its name."""
        return self.uid, self.name

    @property
    def cards(self) -> tuple[str, ...]:
        """Return the uuids of its cards, in the container's device order."""
        return tuple(share.uuid for share in self.shares)

    @property
    def exclusive(self) -> bool:
        """Return whether it shares none of its cards."""
        return bool(self.shares) and all(share.exclusive for share in self.shares)

    def __str__(self) -> str:
        """Return a description for logs and errors."""
        return f"container {self.name} of pod {self.namespace}/{self.pod} ({self.uid})"


class PlacementSource(Protocol):
    """The containers placed on this node. Reads come from memory and never fail."""

    @property
    def version(self) -> int:
        """A number that differs after every change."""

    def containers(self) -> Sequence[PlacedContainer]:
        """Return all containers with cards whose pods have not ended, in any order."""

    async def wait(self, version: int) -> None:
        """Return as soon as the version differs from this one."""

    @property
    def trouble(self) -> str:
        """Why placements may be missing; empty while the source is up to date."""

    async def caught_up(self) -> None:
        """Return once all placements that the ledger held at the call are read; has no deadline."""
