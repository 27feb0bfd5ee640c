"""Confirmed card sizes: the announced sizes by which whole cards and percentages are charged.

A pod that asks for a whole card, or a percentage of one, is charged for the largest card that it
could get, until its card is known.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from msgspec import structs

from ledger.core.model.cards import Card
from ledger.core.model.denials import Denial
from ledger.core.model.events import CardsRegistered, NodeRemoved
from ledger.core.model.state import State
from ledger.kube.requests.card_selector_annotations import selector_of
from ledger.kube.requests.demand_rules import CardSize, DemandRules
from ledger.kube.requests.device_requests import DeviceSelector
from ledger.log.ledger_port import StateView
from ledger.log.records import Record

CARD_MEMORY_MAX: Final = 294_912
"""MiB of the largest card on the market: 288 GiB."""

DOUBTS_MAX: Final = 3
"""Number of unconfirmed larger cards that readiness names."""

TYPE_MAX: Final = 64
"""Maximum length of a type that readiness shows, in characters."""


def confirmed_sizes(nodes_with: Mapping[CardSize, int], most: int) -> tuple[CardSize, ...]:
    """Return the charged size of each vendor and type, sorted.

    `nodes_with` counts, for each size, the nodes whose largest card of the type has that size. A
    node can announce any size, so a size counts only if a second node confirms it: with a card of
    the same type, or of the same vendor if no other node has the type. The sizes of a vendor's
    only node count without confirmation. No size counts above `most` MiB.
    """
    by_type: dict[tuple[str, str], Counter[int]] = {}
    by_vendor: dict[str, Counter[int]] = {}
    for size, nodes in nodes_with.items():
        by_type.setdefault((size.vendor, size.type), Counter())[size.memory] += nodes
        by_vendor.setdefault(size.vendor, Counter())[size.memory] += nodes
    confirmed = []
    for (vendor, model), sizes in sorted(by_type.items()):
        alone = sizes.total() == 1
        memory = min(_second(sizes), _second(by_vendor[vendor]) if alone else most, most)
        confirmed.append(CardSize(vendor, model, memory, alone))
    return tuple(confirmed)


def _second(sizes: Counter[int]) -> int:
    """Return the second largest size, repeated sizes included; the only size if there is one."""
    first = max(sizes)
    rest = [size for size in sizes if size != first or sizes[size] > 1]
    return max(rest, default=first)


def with_accepted_sizes(rules: DemandRules, annotations: Mapping[str, str]) -> DemandRules:
    """Return the rules with the sizes of only those cards that a pod's annotations accept.

    If the annotations accept no known card of a vendor, the sizes of all its cards count.
    """
    if rules.choosing.isdisjoint(annotations):
        return rules
    accepted: list[CardSize] = []
    for vendor in rules.vendors:
        choice = selector_of(annotations, vendor)
        sizes = [size for size in rules.sizes if size.vendor == vendor.name]
        if not isinstance(choice, Denial):
            accepts = [size for size in sizes if _accepts(choice, size.type)]
            # A single node could announce a type whose name contains the names of all others.
            sizes = [size for size in accepts if not size.alone] or accepts or sizes
        accepted += sizes
    if len(accepted) == len(rules.sizes):
        return rules
    return structs.replace(rules, sizes=tuple(accepted))


def _accepts(choice: DeviceSelector, model: str) -> bool:
    model = model.lower()
    if any(word.lower() in model for word in choice.nouse_types):
        return False
    return not choice.use_types or any(word.lower() in model for word in choice.use_types)


class CardSizes:
    """The rules of a cluster with the sizes of its cards, kept up to date by the log."""

    def __init__(
        self,
        view: StateView,
        cluster: str,
        *,
        rules: DemandRules,
        card_memory_max: int = CARD_MEMORY_MAX,
    ) -> None:
        """Subscribe to `view`. No card counts above `card_memory_max` MiB."""
        self._view = view
        self._prefix = f"{cluster}/"
        self._base = self._rules = rules
        self._most = card_memory_max
        self._state: State | None = None
        self._of_node: dict[str, frozenset[CardSize]] = {}
        self._nodes_with: Counter[CardSize] = Counter()
        view.subscribe(self._follow)

    def rules(self) -> DemandRules:
        """Return the current rules. The setting `worst_card_memory` overrides announced sizes."""
        if self._base.worst_card_memory is None and self._state is not self._view.state:
            self._load(self._view.state)
        return self._rules

    def doubts(self) -> list[str]:
        """Return a sentence for each node whose cards are larger than the charged size."""
        charged = {(size.vendor, size.type): size.memory for size in self.rules().sizes}
        larger = (
            (node.removeprefix(self._prefix), size)
            for node, sizes in self._of_node.items()
            for size in sizes
            if size.memory > charged.get((size.vendor, size.type), size.memory)
        )
        return [
            f"node {node} announces {size.type[:TYPE_MAX]!r} of {size.memory} MiB, which no second"
            " node confirms or card_memory_max forbids: until they are placed, whole cards are"
            f" charged {charged[size.vendor, size.type]} MiB of it"
            for node, size in islice(larger, DOUBTS_MAX)
        ]

    def _load(self, state: State) -> None:
        self._state = state
        self._of_node.clear()
        self._nodes_with.clear()
        for name, node in state.nodes.items():
            self._note(name, node.cards)
        self._notify()

    def _follow(self, record: Record) -> None:
        """Update the sizes of the nodes that the record changes."""
        if self._state is not self._view.state:
            return
        for item in record.items:
            event = item.event
            if isinstance(event, CardsRegistered):
                self._note(event.node, event.cards)
            elif isinstance(event, NodeRemoved):
                self._note(event.node, ())
            else:
                continue
            self._notify()

    def _note(self, node: str, cards: Iterable[Card]) -> None:
        if not node.startswith(self._prefix):
            return
        largest: dict[tuple[str, str], int] = {}
        for card in cards:
            kind = card.vendor, card.type
            largest[kind] = max(card.memory, largest.get(kind, 0))
        sizes = frozenset(CardSize(*kind, memory) for kind, memory in largest.items())
        self._nodes_with.subtract(self._of_node.pop(node, ()))
        self._nodes_with.update(sizes)
        # Unary `+` drops the sizes that no node has any longer.
        self._nodes_with = +self._nodes_with
        if sizes:
            self._of_node[node] = sizes

    def _notify(self) -> None:
        sizes = confirmed_sizes(self._nodes_with, self._most)
        if sizes != self._rules.sizes:
            self._rules = structs.replace(self._base, sizes=sizes)
