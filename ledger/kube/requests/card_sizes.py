"""Sizes of cards: how large the cards of a cluster are, by what its nodes announce.

Who asks for a whole card, or a percentage of one, is charged as for the largest card that it could
be, until it is known which one it is.
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
from ledger.kube.requests.demand_rules import CardSize, DemandRules
from ledger.kube.requests.device_requests import DeviceSelector
from ledger.kube.requests.device_selectors import selector_of
from ledger.log.ledger import StateView
from ledger.log.records import Record

CARD_MEMORY_MAX: Final = 294_912
"""MiB of the largest card that is sold: 288 GiB."""

DOUBTS_MAX: Final = 3
"""Cards that readiness names of those that are larger than what is believed."""

TYPE_MAX: Final = 64
"""Characters of a type that readiness shows."""


def confirmed_sizes(nodes_with: Mapping[CardSize, int], most: int) -> tuple[CardSize, ...]:
    """Return the size of each vendor and type that pods are charged by, in order.

    `nodes_with` counts, for each size, the nodes whose largest card of the type has it. Each node
    can announce what it likes, so a size counts as far as a second node has such a card: of the
    same type, or of the same vendor where no other node has the type. Where one node alone has
    cards of a vendor, it is believed. No size counts above `most` MiB.
    """
    by_type: dict[tuple[str, str], Counter[int]] = {}
    by_vendor: dict[str, Counter[int]] = {}
    for size, nodes in nodes_with.items():
        by_type.setdefault((size.vendor, size.type), Counter())[size.memory] += nodes
        by_vendor.setdefault(size.vendor, Counter())[size.memory] += nodes
    found = []
    for (vendor, model), sizes in sorted(by_type.items()):
        alone = sizes.total() == 1
        memory = min(_second(sizes), _second(by_vendor[vendor]) if alone else most, most)
        found.append(CardSize(vendor, model, memory, alone))
    return tuple(found)


def _second(sizes: Counter[int]) -> int:
    """Return the second largest of sizes, each as often as it is counted; the only one if alone."""
    first = max(sizes)
    rest = [size for size in sizes if size != first or sizes[size] > 1]
    return max(rest, default=first)


def with_accepted_sizes(rules: DemandRules, annotations: Mapping[str, str]) -> DemandRules:
    """Return the rules with the sizes of those cards alone that a pod's annotations accept.

    Where they accept none that is known, all cards of the vendor stand for what may still come.
    """
    if rules.choosing.isdisjoint(annotations):
        return rules
    accepted: list[CardSize] = []
    for vendor in rules.vendors:
        choice = selector_of(annotations, vendor)
        sizes = [size for size in rules.sizes if size.vendor == vendor.name]
        if not isinstance(choice, Denial):
            accepts = [size for size in sizes if _accepts(choice, size.type)]
            # One node alone could announce a type whose name contains those of all others.
            sizes = [size for size in accepts if not size.alone] or accepts or sizes
        accepted += sizes
    if len(accepted) == len(rules.sizes):
        return rules
    return structs.replace(rules, sizes=tuple(accepted))


def _accepts(choice: DeviceSelector, model: str) -> bool:
    model = model.lower()
    if any(one.lower() in model for one in choice.nouse_types):
        return False
    return not choice.use_types or any(one.lower() in model for one in choice.use_types)


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
        """Read from `view`, which calls back from now on; no card counts above so many MiB."""
        self._view = view
        self._prefix = f"{cluster}/"
        self._base = self._rules = rules
        self._most = card_memory_max
        self._state: State | None = None
        self._of_node: dict[str, frozenset[CardSize]] = {}
        self._nodes_with: Counter[CardSize] = Counter()
        view.subscribe(self._follow)

    def rules(self) -> DemandRules:
        """Return the rules as of now; the setting `worst_card_memory` goes before what is known."""
        if self._base.worst_card_memory is None and self._state is not self._view.state:
            self._load(self._view.state)
        return self._rules

    def doubts(self) -> list[str]:
        """Return which nodes announce larger cards than whole cards are charged as, and why."""
        charged = {(one.vendor, one.type): one.memory for one in self.rules().sizes}
        larger = (
            (node.removeprefix(self._prefix), one)
            for node, sizes in self._of_node.items()
            for one in sizes
            if one.memory > charged.get((one.vendor, one.type), one.memory)
        )
        return [
            f"node {node} announces {one.type[:TYPE_MAX]!r} of {one.memory} MiB, which no second"
            " node confirms or card_memory_max forbids: until they are placed, whole cards are"
            f" charged {charged[one.vendor, one.type]} MiB of it"
            for node, one in islice(larger, DOUBTS_MAX)
        ]

    def _load(self, state: State) -> None:
        self._state = state
        self._of_node.clear()
        self._nodes_with.clear()
        for name, node in state.nodes.items():
            self._note(name, node.cards)
        self._tell()

    def _follow(self, record: Record) -> None:
        """Take note of what nodes announce, without looking at all the others again."""
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
            self._tell()

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
        # Without those that no node has any more; `+` leaves them out.
        self._nodes_with = +self._nodes_with
        if sizes:
            self._of_node[node] = sizes

    def _tell(self) -> None:
        sizes = confirmed_sizes(self._nodes_with, self._most)
        if sizes != self._rules.sizes:
            self._rules = structs.replace(self._base, sizes=sizes)
