"""Sizes of cards: how large the cards of a cluster are, by what its nodes announce.

Who asks for a whole card, or a percentage of one, is charged as for the largest card that it could
be, until it is known which one it is.
"""

from collections.abc import Mapping

from msgspec import structs

from ledger.core.denials import Denial
from ledger.core.events import CardsRegistered, NodeRemoved
from ledger.core.state import State
from ledger.kube.choices import choice_of
from ledger.kube.rules import CardSize, DemandRules
from ledger.kube.wishes import Choice
from ledger.log.records import Record
from ledger.log.view import View


def sizes_of(state: State, cluster: str) -> tuple[CardSize, ...]:
    """Return the largest card of each vendor and type that nodes of a cluster have, in order."""
    largest: dict[tuple[str, str], int] = {}
    for name, node in state.nodes.items():
        if not name.startswith(f"{cluster}/"):
            continue
        for card in node.cards:
            kind = card.vendor, card.type
            largest[kind] = max(card.memory, largest.get(kind, 0))
    return tuple(CardSize(*kind, memory) for kind, memory in sorted(largest.items()))


def eligible(rules: DemandRules, annotations: Mapping[str, str] | None) -> DemandRules:
    """Return the rules with the sizes of those cards alone that a pod's annotations accept.

    Where they accept none that is known, all cards of the vendor stand for what may still come.
    """
    if not (annotations and rules.sizes):
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
        self._cluster = cluster
        self._base = self._rules = rules
        self._seen: State | None = None
        view.subscribe(self._follow)

    def rules(self) -> DemandRules:
        """Return the rules as of now; the setting `worst_card_memory` goes before what is known."""
        state = self._view.state
        if self._base.worst_card_memory is None and self._seen is not state:
            self._seen = state
            sizes = sizes_of(state, self._cluster)
            if sizes != self._rules.sizes:
                self._rules = structs.replace(self._base, sizes=sizes)
        return self._rules

    def _follow(self, record: Record) -> None:
        if any(isinstance(item.event, CardsRegistered | NodeRemoved) for item in record.items):
            self._seen = None
