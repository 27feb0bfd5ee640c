"""Device requests: the cards that each container of a pod requests, and the cards it accepts.

They follow the same rules as the demand (`ledger.kube.requests.container_demand`) and HAMi's
annotations. Invalid values are refused, never ignored.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from ledger.core.model.cards import Phase

NODE_POLICIES: Final = ("binpack", "spread", "whole")
"""Preference for nodes: the fullest, the emptiest, or the node that keeps most cards whole."""

CARD_POLICIES: Final = ("binpack", "spread", "numa", "mutex", "topology-aware", "whole")
"""Preference for cards of a node; several are in order of importance."""


class DeviceSelector(msgspec.Struct, frozen=True, gc=False):
    """The cards of one vendor that a pod accepts.

    A card is accepted if its type contains one of `use_types` (any type if that is empty) and
    none of `nouse_types`, regardless of case. Uuids must match exactly. `mode` must contain the
    card's mode, if both are set.
    """

    use_types: tuple[str, ...] = ()
    nouse_types: tuple[str, ...] = ()
    use_uuids: tuple[str, ...] = ()
    nouse_uuids: tuple[str, ...] = ()
    mode: str = ""


ANY: Final = DeviceSelector()
"""Every card of the vendor."""


class DeviceRequest(msgspec.Struct, frozen=True, gc=False):
    """Cards of one vendor that one container requests; all amounts are per card.

    `memory` is in MiB. If `percentage` is 1 to 100, the request is that part of each card's memory,
    rounded down, and `memory` is 0. `cores` is in the unit in which the vendor's cards are
    announced, percent for most. `exclusive` is true if the container requests all of each card.
    """

    vendor: str
    count: int
    memory: int
    percentage: int
    cores: int
    exclusive: bool
    choice: DeviceSelector = ANY


class ContainerDeviceRequests(msgspec.Struct, frozen=True, gc=False):
    """The device requests of one container; `cards` may be empty."""

    container: str
    phase: Phase
    cards: tuple[DeviceRequest, ...] = ()


class Weights(msgspec.Struct, frozen=True, gc=False):
    """The weights of slots, cores and memory in a score."""

    slots: int = 1
    cores: int = 1
    memory: int = 1


class PodDeviceRequest(msgspec.Struct, frozen=True):
    """The device requests of a pod's containers, in the order of the pod's slots.

    Init containers and sidecars come first, in order of the spec, then the app containers.
    `numa_bind` requires the cards of each container on one NUMA node. The setting applies if
    `node_policy`, `card_policies` or `weights` is empty. `types` are the known card types that
    the pod is charged for (`DemandRules.types`).
    """

    containers: tuple[ContainerDeviceRequests, ...]
    numa_bind: bool = False
    node_policy: str = ""
    card_policies: tuple[str, ...] = ()
    weights: Weights | None = None
    types: tuple[str, ...] = ()

    def wants_cards(self) -> bool:
        """Return whether any container requests a card."""
        return any(container.cards for container in self.containers)

    def among(self, vendors: Collection[str]) -> "PodDeviceRequest":
        """Return the request with the cards of only these vendors."""
        if all(card.vendor in vendors for container in self.containers for card in container.cards):
            return self
        containers = tuple(
            msgspec.structs.replace(
                container, cards=tuple(card for card in container.cards if card.vendor in vendors)
            )
            for container in self.containers
        )
        return msgspec.structs.replace(self, containers=containers)
