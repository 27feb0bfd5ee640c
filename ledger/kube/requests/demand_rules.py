"""The rules by which requests of containers become amounts: vendors, types of cards, defaults."""

from collections.abc import Mapping
from functools import cached_property

import msgspec

from ledger.kube.requests import gpu_types
from ledger.kube.requests.device_selectors import selector_annotations
from ledger.kube.requests.gpu_types import CardType
from ledger.kube.requests.pod_traits import NONE, RecordedLabels, labels_of
from ledger.kube.vendors.vendors import NVIDIA, Vendor


class CardSize(msgspec.Struct, frozen=True, gc=False):
    """How many MiB the largest card of one vendor and type has.

    `alone` says that one node announces such cards, and no second one confirms the type.
    """

    vendor: str
    type: str
    memory: int
    alone: bool = False


class DemandRules(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Whose cards count and how they are asked for, in HAMi's words, and what counts besides.

    `worst_card_memory` is how many MiB a card may have at most, None when that is not known; a
    type's or a vendor's own word on its cards goes before it, and `sizes`, of the cards that there
    are, stand in for it. `managed` names further resources to count, such as `cpu`, `memory` or
    `nvidia.com/mig-1g.10gb`. `types` are the known types of cards, which pods name in
    `type_annotations`; without any, these annotations say nothing. `labels` are those that are
    recorded with what is charged.
    """

    vendors: tuple[Vendor, ...] = (NVIDIA,)
    worst_card_memory: int | None = None
    managed: tuple[str, ...] = ()
    sizes: tuple[CardSize, ...] = ()
    types: tuple[CardType, ...] = ()
    type_annotations: tuple[str, ...] = gpu_types.ANNOTATIONS
    labels: RecordedLabels = NONE

    @cached_property
    def by_name(self) -> dict[str, Vendor]:
        """The vendors by name."""
        return {vendor.name: vendor for vendor in self.vendors}

    @cached_property
    def largest(self) -> dict[str, int]:
        """By vendor, the MiB of its largest card that there is."""
        found: dict[str, int] = {}
        for size in self.sizes:
            found[size.vendor] = max(size.memory, found.get(size.vendor, 0))
        return found

    @cached_property
    def choosing(self) -> frozenset[str]:
        """The annotations by which pods choose cards of these vendors."""
        return frozenset(
            key for vendor in self.vendors for key in selector_annotations(vendor).names()
        )

    @cached_property
    def vendor_of(self) -> dict[str, Vendor]:
        """Whose cards, or shares of them, a resource asks for."""
        return {name: vendor for vendor in self.vendors for name in vendor.names()}

    @cached_property
    def of_cards(self) -> frozenset[str]:
        """The resources that ask for cards or for shares of them."""
        return frozenset(self.vendor_of)

    @cached_property
    def besides(self) -> tuple[str, ...]:
        """The managed resources that are no cards."""
        return tuple(name for name in self.managed if name not in self.of_cards)

    @cached_property
    def charged(self) -> tuple[str, ...]:
        """Every resource that amounts are of, but for those of types."""
        cards = (name for vendor in self.vendors for name in vendor.charged())
        return (*cards, *self.besides)

    @cached_property
    def known_types(self) -> dict[str, CardType]:
        """The known types by name."""
        return {one.name: one for one in self.types}

    @cached_property
    def typed(self) -> dict[str, dict[str, str]]:
        """By type and resource of a card: the resource that only cards of this type are."""
        resources = [name for vendor in self.vendors for name in vendor.charged()]
        return {one.name: {name: f"{one.name}.{name}" for name in resources} for one in self.types}


class RecordedLabelRules:
    """Adds to rules which labels are recorded, and remembers the last it has made."""

    def __init__(self) -> None:
        self._rules: DemandRules | None = None
        self._numbers: dict[str, int] = {}
        self._made: DemandRules | None = None

    def rules(self, rules: DemandRules, numbers: Mapping[str, int]) -> DemandRules:
        """Return the rules with the labels to which a state has given numbers."""
        if not numbers:
            return rules
        if self._made is None or rules is not self._rules or numbers != self._numbers:
            self._rules, self._numbers = rules, dict(numbers)
            self._made = msgspec.structs.replace(rules, labels=labels_of(numbers))
        return self._made
