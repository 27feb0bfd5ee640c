"""Card overlap: cards that two mechanisms gave away, or that hold more than they have.

A card in a ResourceSlice belongs to kube-scheduler's allocator. Placements of an extender or of
HAMi on it are drift, and so is an allocation that takes more than its card has left.
"""

from collections.abc import Iterator, Set
from itertools import islice
from typing import Final, NamedTuple

import structlog

from extender.settlement.allocated_devices.device_shares import is_of_claims
from extender.settlement.allocated_devices.offered_cards import OfferedCards
from extender.settlement.card_reconciler_context import CardReconcilerContext
from ledger.core.decide.cards.card_checks import residents
from ledger.core.model import cards
from ledger.core.model.cards import LINES, SLOTS
from ledger.core.model.events import AnyEvent, Placed
from ledger.core.model.qualified_names import local_name
from ledger.core.model.state import State
from ledger.tasks.periodic import CooperativeYield

LOOK_SECONDS: Final = 10.0
"""How often the cards are compared with the slices."""

OFFERED: Final = "offered"
OVERFULL: Final = "overfull"
"""The kinds of drift: a placed pod is on a card of a slice, an allocation is on a full card."""

NAMED_MAX: Final = 3
"""Overlapping cards that the warnings name, and pods that one names."""

_log: Final = structlog.get_logger("extender")


class CardOverlap(NamedTuple):
    """An overlap on a card of a node; `pods` are at most three of those that have the card."""

    kind: str
    node: str
    card: str
    pods: tuple[str, ...] = ()

    def shown(self) -> str:
        """Return the overlap as a sentence without a full stop."""
        who = ", ".join(self.pods)
        where = f"card {self.card} of node {local_name(self.node)}"
        if self.kind == OFFERED:
            return f"{where} is in a ResourceSlice and has pods that were placed on it: {who}"
        return f"{where} holds more than it has, beside resource claims: {who}"


class CardOverlaps:
    """Finds the overlaps of one cluster; `standing` are those of the last look."""

    def __init__(self, context: CardReconcilerContext, offered: OfferedCards) -> None:
        self.standing: tuple[CardOverlap, ...] = ()
        self._context, self._offered = context, offered
        self._with_claims: dict[str, None] = {}
        self._has_looked = False

    def follow(self, event: AnyEvent) -> None:
        """Take note of a node with a new allocation."""
        if isinstance(event, Placed) and is_of_claims(event.parts):
            self._with_claims[event.node] = None

    async def look(self) -> None:
        """Find the overlaps; count and log those that are new."""
        stride, state = CooperativeYield(), self._context.view.state
        before = {overlap[:3] for overlap in self.standing}
        standing: list[CardOverlap] = []
        if not self._has_looked:
            await self._find(state, stride)
            self._has_looked = True
        for node in self._nodes(state):
            await stride.step()
            standing += overlaps_on(state, node, self._offered.of(local_name(node)))
        self.standing = tuple(standing)
        for overlap in standing:
            if overlap[:3] not in before:
                self._context.count("placement_drift_total", overlap.kind)
                _log.warning("cards_overlap", reason=overlap.shown())

    def warnings(self) -> list[str]:
        """Return the first overlaps, and how many more there are."""
        named = [
            f"{overlap.shown()}; see the runbook of LedgerCardsOverlap"
            for overlap in islice(self.standing, NAMED_MAX)
        ]
        more = len(self.standing) - len(named)
        return [*named, f"and {more} more cards overlap"] if more else named

    async def _find(self, state: State, stride: CooperativeYield) -> None:
        """Take note of the nodes with allocations that an earlier active replica placed."""
        for node in [name for name in state.residents if self._context.owns(name)]:
            await stride.step()
            if any(is_of_claims(placed.parts) for _, _, placed in residents(state, node)):
                self._with_claims[node] = None

    def _nodes(self, state: State) -> list[str]:
        """Return the nodes with offered cards or allocations, and with any pod on a card."""
        for node in [node for node in self._with_claims if not state.residents.get(node)]:
            del self._with_claims[node]
        return [
            node
            for node in list(state.residents)
            if state.residents[node]
            and self._context.owns(node)
            and (node in self._with_claims or self._offered.of(local_name(node)))
        ]


def overlaps_on(state: State, node: str, offered: Set[str]) -> Iterator[CardOverlap]:
    """Yield the overlaps on the cards of a node, by its qualified name, at most two of a card.

    A card that its node no longer announces has no size, so it is never overfull.
    """
    placed, claimed = dict[str, list[str]](), dict[str, list[str]]()
    known = state.nodes.get(node)
    lost = {card.uuid for card in known.lost} if known is not None else frozenset()
    for namespace, key, placement in residents(state, node):
        name = f"{local_name(namespace)}/{key.partition('/')[2]}"
        holders = claimed if is_of_claims(placement.parts) else placed
        for uuid in cards.uuids(placement.parts):
            holders.setdefault(uuid, []).append(name)
    for uuid in sorted(placed.keys() & offered):
        yield CardOverlap(OFFERED, node, uuid, _named(placed[uuid]))
    for uuid in sorted(claimed.keys() - lost):
        if _is_overfull(state, node, uuid):
            names = [*claimed[uuid], *placed.get(uuid, ())]
            yield CardOverlap(OVERFULL, node, uuid, _named(names))


def _is_overfull(state: State, node: str, uuid: str) -> bool:
    """Return whether a card holds more MiB or percent than it has.

    The number of containers is a rule of device plugins, and no claim follows it.
    """
    lines = zip(LINES, state.card_lines[node, uuid], strict=True)
    return any(state.used[line] > state.limit[line] for name, line in lines if name != SLOTS)


def _named(pods: list[str]) -> tuple[str, ...]:
    return tuple(sorted(pods)[:NAMED_MAX])
