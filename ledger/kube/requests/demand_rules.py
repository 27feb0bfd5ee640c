"""Demand rules: how requests become amounts, by vendor, card type and default."""

from functools import cached_property

import msgspec

from ledger.kube.requests import gpu_type_annotation
from ledger.kube.requests.card_selector_annotations import selector_annotations
from ledger.kube.requests.claim_demands import NO_CLAIMS, ClaimDemands
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.requests.recorded_labels import NONE, RecordedLabels
from ledger.kube.vendors.vendors import NVIDIA, Vendor


class CardSize(msgspec.Struct, frozen=True, gc=False):
    """The MiB of the largest card of one vendor and type.

    `alone` is true if only one node announces the type.
    """

    vendor: str
    type: str
    memory: int
    alone: bool = False


class DemandRules(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The vendors whose cards are charged, and the other charged resources.

    `worst_card_memory` is the MiB of the largest possible card, None if unknown. The size of a
    type or a vendor overrides it. If it is None, `sizes` holds the sizes of the current cards.
    `managed` names further resources to count, such as `cpu`, `memory` or
    `nvidia.com/mig-1g.10gb`. `types` are the known card types, which pods name in
    `type_annotations`; without known types these annotations are ignored. `labels` are the labels
    that are recorded with each charge. `claims` reads the resource claims of pods from live caches,
    so amounts of pods with claims change with them.
    """

    vendors: tuple[Vendor, ...] = (NVIDIA,)
    worst_card_memory: int | None = None
    managed: tuple[str, ...] = ()
    sizes: tuple[CardSize, ...] = ()
    types: tuple[CardType, ...] = ()
    type_annotations: tuple[str, ...] = gpu_type_annotation.ANNOTATIONS
    labels: RecordedLabels = NONE
    claims: ClaimDemands = NO_CLAIMS

    @cached_property
    def by_name(self) -> dict[str, Vendor]:
        """The vendors by name."""
        return {vendor.name: vendor for vendor in self.vendors}

    @cached_property
    def largest(self) -> dict[str, int]:
        """The MiB of the largest current card, by vendor."""
        by_vendor: dict[str, int] = {}
        for size in self.sizes:
            by_vendor[size.vendor] = max(size.memory, by_vendor.get(size.vendor, 0))
        return by_vendor

    @cached_property
    def choosing(self) -> frozenset[str]:
        """The annotations by which pods choose cards of these vendors."""
        return frozenset(
            key for vendor in self.vendors for key in selector_annotations(vendor).names()
        )

    @cached_property
    def vendor_of(self) -> dict[str, Vendor]:
        """The vendor whose cards, or shares of cards, a resource requests."""
        return {name: vendor for vendor in self.vendors for name in vendor.names()}

    @cached_property
    def of_cards(self) -> frozenset[str]:
        """The resources that request cards or shares of cards."""
        return frozenset(self.vendor_of)

    @cached_property
    def besides(self) -> tuple[str, ...]:
        """The managed resources other than cards."""
        return tuple(name for name in self.managed if name not in self.of_cards)

    @cached_property
    def charged(self) -> tuple[str, ...]:
        """All charged resources, without the resources of card types."""
        cards = (name for vendor in self.vendors for name in vendor.charged())
        return (*cards, *self.besides)

    @cached_property
    def known_types(self) -> dict[str, CardType]:
        """The known types by name."""
        return {card_type.name: card_type for card_type in self.types}

    @cached_property
    def typed(self) -> dict[str, dict[str, str]]:
        """The resource of one card type, by type and resource of a card."""
        resources = [name for vendor in self.vendors for name in vendor.charged()]
        return {
            card_type.name: {name: f"{card_type.name}.{name}" for name in resources}
            for card_type in self.types
        }
