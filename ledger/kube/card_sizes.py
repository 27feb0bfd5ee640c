"""Sizes of cards: how large the cards of a cluster are, by what its nodes announce.

Who asks for a whole card, or a percentage of one, is charged as for the largest card that it could
be, until it is known which one it is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import structs

from ledger.core.cards import Card
from ledger.core.denials import Denial
from ledger.core.events import CardsRegistered, NodeRemoved
from ledger.core.state import State
from ledger.kube.choices import choice_of
from ledger.kube.rules import CardSize, DemandRules
from ledger.kube.wishes import Choice
from ledger.log.records import Record
from ledger.log.view import View


def largest_of(sizes: Iterable[CardSize]) -> tuple[CardSize, ...]:
    """Return the largest size of each vendor and type, in order."""
    found: dict[tuple[str, str], CardSize] = {}
    for size in sizes:
        kind = size.vendor, size.type
        if kind not in found or found[kind].memory < size.memory:
            found[kind] = size
    return tuple(found[kind] for kind in sorted(found))


def eligible(rules: DemandRules, annotations: Mapping[str, str] | None) -> DemandRules:
    """Return the rules with the sizes of those cards alone that a pod's annotations accept.

    Where they accept none that is known, all cards of the vendor stand for what may still come.
    """
    if not (annotations and rules.sizes) or rules.choosing.isdisjoint(annotations):
        return rules
    accepted: list[CardSize] = []
    for vendor in rules.vendors:
        choice = choice_of(annotations, vendor)
        sizes = [size for size in rules.sizes if size.vendor == vendor.name]
        if not isinstance(choice, Denial):
            sizes = [size for size in sizes if _accepts(choice, size.type)] or sizes
        accepted += sizes
    if len(accepted) == len(rules.sizes):
        return rules
    return structs.replace(rules, sizes=tuple(accepted))


def _accepts(choice: Choice, model: str) -> bool:
    model = model.lower()
    if any(one.lower() in model for one in choice.nouse_types):
        return False
    return not choice.use_types or any(one.lower() in model for one in choice.use_types)


class Sizes:
    """The rules of a cluster with the sizes of its cards, kept up to date by the log."""

    def __init__(self, view: View, cluster: str, rules: DemandRules) -> None:
        """Read from `view`, which calls back from now on."""
        self._view = view
        self._prefix = f"{cluster}/"
        self._base = self._rules = rules
        self._state: State | None = None
        self._of_node: dict[str, frozenset[CardSize]] = {}
        self._nodes_with: Counter[CardSize] = Counter()
        view.subscribe(self._follow)

    def rules(self) -> DemandRules:
        """Return the rules as of now; the setting `worst_card_memory` goes before what is known."""
        if self._base.worst_card_memory is None and self._state is not self._view.state:
            self._load(self._view.state)
        return self._rules

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
        sizes = frozenset(CardSize(card.vendor, card.type, card.memory) for card in cards)
        self._nodes_with.subtract(self._of_node.pop(node, ()))
        self._nodes_with.update(sizes)
        if sizes:
            self._of_node[node] = sizes

    def _tell(self) -> None:
        sizes = largest_of(size for size, nodes in self._nodes_with.items() if nodes)
        if sizes != self._rules.sizes:
            self._rules = structs.replace(self._base, sizes=sizes)
