"""Wishes: what a pod wants of cards, container by container, and which cards it accepts.

Read by the same rules as its demand (`ledger.kube.containers`), and by the annotations that HAMi's
users know. What cannot be understood is refused, never ignored.
"""

from typing import Final

import msgspec

from ledger.core.cards import Phase

NODE_POLICIES: Final = ("binpack", "spread", "whole")
"""How nodes are preferred: the fullest, the emptiest, or the one that keeps most cards whole."""

CARD_POLICIES: Final = ("binpack", "spread", "numa", "mutex", "topology-aware", "whole")
"""How cards of a node are preferred; several stand in order of importance."""


class CardWish(msgspec.Struct, frozen=True, gc=False):
    """Cards of one vendor that one container wants; everything is per card.

    `memory` is MiB; with `percentage` 1 to 100 it is that part of each card's memory, rounded down,
    and `memory` is 0. `cores` is percent. `exclusive` wants the cards for nobody else: all cores of
    a card were asked for.
    """

    vendor: str
    count: int
    memory: int
    percentage: int
    cores: int
    exclusive: bool


class Wish(msgspec.Struct, frozen=True, gc=False):
    """What one container wants, nothing when `cards` is empty."""

    container: str
    phase: Phase
    cards: tuple[CardWish, ...] = ()


class Weights(msgspec.Struct, frozen=True, gc=False):
    """How much slots, cores and memory count in a score."""

    slots: int = 1
    cores: int = 1
    memory: int = 1


class PodWish(msgspec.Struct, frozen=True):
    """What a pod wants: init containers and sidecars in order of the spec, then app containers.

    Types are accepted whose model contains one of `use_types` in any case of letters (all when that
    is empty) and none of `nouse_types`; uuids exactly. `mode` must contain the card's mode, if both
    have one. `numa_bind` wants the cards of each container on one NUMA node. An empty
    `node_policy` or `card_policies` leaves it to the setting.
    """

    wishes: tuple[Wish, ...]
    use_types: tuple[str, ...] = ()
    nouse_types: tuple[str, ...] = ()
    use_uuids: tuple[str, ...] = ()
    nouse_uuids: tuple[str, ...] = ()
    mode: str = ""
    numa_bind: bool = False
    node_policy: str = ""
    card_policies: tuple[str, ...] = ()
    weights: Weights = Weights()

    def wants_cards(self) -> bool:
        """Return whether any container wants a card."""
        return any(wish.cards for wish in self.wishes)
