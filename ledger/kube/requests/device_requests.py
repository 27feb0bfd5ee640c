"""Wishes: what a pod wants of cards, container by container, and which cards it accepts.

Read by the same rules as its demand (`ledger.kube.requests.container_demand`), and by the
annotations that HAMi's users know. What cannot be understood is refused, never ignored.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from ledger.core.model.cards import Phase

NODE_POLICIES: Final = ("binpack", "spread", "whole")
"""How nodes are preferred: the fullest, the emptiest, or the one that keeps most cards whole."""

CARD_POLICIES: Final = ("binpack", "spread", "numa", "mutex", "topology-aware", "whole")
"""How cards of a node are preferred; several stand in order of importance."""


class DeviceSelector(msgspec.Struct, frozen=True, gc=False):
    """Which cards of one vendor a pod accepts.

    Types are accepted whose model contains one of `use_types`, in any case of letters (all when
    that is empty), and none of `nouse_types`; uuids exactly, likewise. `mode` must contain the
    card's mode, if both have one.
    """

    use_types: tuple[str, ...] = ()
    nouse_types: tuple[str, ...] = ()
    use_uuids: tuple[str, ...] = ()
    nouse_uuids: tuple[str, ...] = ()
    mode: str = ""


ANY: Final = DeviceSelector()
"""Every card of the vendor."""


class DeviceRequest(msgspec.Struct, frozen=True, gc=False):
    """Cards of one vendor that one container wants; everything is per card.

    `memory` is MiB; with `percentage` 1 to 100 it is that part of each card's memory, rounded down,
    and `memory` is 0. `cores` is in the unit in which the vendor's cards are announced, percent for
    most. `exclusive` wants the cards for nobody else: all of a card was asked for.
    """

    vendor: str
    count: int
    memory: int
    percentage: int
    cores: int
    exclusive: bool
    choice: DeviceSelector = ANY


class ContainerDeviceRequests(msgspec.Struct, frozen=True, gc=False):
    """What one container wants, nothing when `cards` is empty."""

    container: str
    phase: Phase
    cards: tuple[DeviceRequest, ...] = ()


class Weights(msgspec.Struct, frozen=True, gc=False):
    """How much slots, cores and memory count in a score."""

    slots: int = 1
    cores: int = 1
    memory: int = 1


class PodDeviceRequest(msgspec.Struct, frozen=True):
    """What a pod wants: init containers and sidecars in order of the spec, then app containers.

    `numa_bind` wants the cards of each container on one NUMA node. An empty `node_policy`, empty
    `card_policies` or no `weights` leave it to the setting. `types` are the known types of cards
    that the pod is charged as (`DemandRules.types`).
    """

    wishes: tuple[ContainerDeviceRequests, ...]
    numa_bind: bool = False
    node_policy: str = ""
    card_policies: tuple[str, ...] = ()
    weights: Weights | None = None
    types: tuple[str, ...] = ()

    def wants_cards(self) -> bool:
        """Return whether any container wants a card."""
        return any(wish.cards for wish in self.wishes)

    def among(self, vendors: Collection[str]) -> "PodDeviceRequest":
        """Return the wish without cards of other vendors than these."""
        if all(card.vendor in vendors for wish in self.wishes for card in wish.cards):
            return self
        wishes = tuple(
            msgspec.structs.replace(
                wish, cards=tuple(card for card in wish.cards if card.vendor in vendors)
            )
            for wish in self.wishes
        )
        return msgspec.structs.replace(self, wishes=wishes)

    def of(self, container: str) -> tuple[DeviceRequest, ...]:
        """Return what a container wants, nothing for one that is not known."""
        return next((wish.cards for wish in self.wishes if wish.container == container), ())
