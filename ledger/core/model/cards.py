"""Cards: the cards of a node, and the shares of them that containers take.

A **share** is the part of one card that one container takes; a **part** is one container with its
shares. The sums of shares on a card are in `card_bookings`.
"""

from enum import IntEnum
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts

MEMORY: Final = "memory"
CORES: Final = "cores"
SLOTS: Final = "slots"

LINES: Final = (MEMORY, CORES, SLOTS)
"""The keys of a card account's lines, in the order in which events number them: MiB, percent of a
card, and how many containers may share it."""

HAMI: Final = "hami"
"""The keeper of a node whose cards HAMi's device plugin announces and hands out."""
OWN: Final = "gpuledger"
"""The keeper of a node whose cards our agent announces and hands out."""

WHOLE: Final = 100
"""The cores of a whole card, in percent."""

MIG: Final = "mig"
"""The mode of a card that is cut into instances."""


class Profile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One size of instance that a card can be cut into: MiB, percent of its cores, slices.

    `placements` are the `(start, size)` in slices where such an instance may lie.
    """

    name: str
    memory: int
    cores: int
    slices: int
    placements: tuple[tuple[int, int], ...]


class Card(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One physical card as its node announces it.

    `memory` (MiB), `cores` (percent) and `slots` are the amounts that may be promised of it.
    `memory_scale` and `cores_scale` are these amounts in percent of the physical ones, 100 without
    overcommit.
    """

    uuid: str
    index: int
    type: str
    memory: int
    cores: int
    slots: int
    vendor: str = "nvidia"
    numa: int = 0
    mode: str = ""
    healthy: bool = True
    cordoned: bool = False
    profiles: tuple[Profile, ...] = ()
    memory_scale: int = 100
    cores_scale: int = 100

    def limits(self) -> tuple[int, int, int]:
        """Return the limits of the account's lines, in the order of `LINES`."""
        return self.memory, self.cores, self.slots


class Share(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The share of one card that one container takes: MiB and percent.

    An `exclusive` share allows no other pod on the card.

    On a card that is cut into instances, `profile` names the size of the instance, which lies at
    slice `start` and is `size` slices long.
    """

    uuid: str
    memory: int
    cores: int
    exclusive: bool = False
    profile: str = ""
    start: int = 0
    size: int = 0


class Phase(IntEnum):
    """When a container runs."""

    INIT = 0
    SIDECAR = 1
    APP = 2


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One container and its shares, none for a container that asked for no card."""

    container: str
    phase: int
    shares: tuple[Share, ...] = ()


Parts = tuple[Part, ...]
"""The containers of a pod: init containers and sidecars as in its spec, then app containers."""


class Stage(IntEnum):
    """How far a placement has come."""

    PROPOSED = 0
    """No binding of the pod was observed yet."""
    BOUND = 1
    """The API server has bound the pod to the node."""
    ALLOCATED = 2
    """The node has allocated the cards."""


class Placement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The cards of a pod. With an empty `node` the pod has none, and only the amounts are left.

    `stands` are the amounts that the cards decided, by resource: they replace those of the pod's
    spec until the pod ends. `initialised` is set when the init containers have ended and book
    nothing any more, `observed` when another scheduler placed the pod. `time` in µs of Unix time.
    `version` is the only resourceVersion of the pod for which a Binding to these cards is sent;
    0 when that is not promised, and once the pod is bound.
    """

    uid: str
    node: str
    parts: Parts
    stands: Amounts
    time: int
    stage: int = Stage.PROPOSED
    initialised: bool = False
    observed: bool = False
    version: int = 0


class PreemptionClaim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Cards that are kept for a pod while pods that hold them are evicted.

    `victims` are these pods, as `(namespace, key, uid)`; `time` in µs of Unix time.
    """

    namespace: str
    key: str
    uid: str
    parts: Parts
    victims: tuple[tuple[str, str, str], ...]
    time: int


class NodeCards(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node's cards, the `keeper` that announces them, and lost cards that pods still hold.

    `version` is the resourceVersion of the announcing object. A node that is `gone` has no cards.
    """

    keeper: str
    cards: tuple[Card, ...]
    version: int = 0
    lost: tuple[Card, ...] = ()
    gone: bool = False


def card_of(node: NodeCards, uuid: str) -> Card | None:
    """Return a card that the node announces."""
    for card in node.cards:
        if card.uuid == uuid:
            return card
    return None


def uuids(parts: Parts) -> dict[str, None]:
    """Return the cards that parts name, each once, in order."""
    return {share.uuid: None for part in parts for share in part.shares}
