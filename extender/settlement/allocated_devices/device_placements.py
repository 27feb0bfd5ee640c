"""Device placements: what kube-scheduler allocated for resource claims, on the accounts of cards.

The ledger has the devices of each object, its pod's or the claim's own. A device whose node and
uuid are those of an announced card is that card. So the object is placed there as a fact, also over
a limit. Quotas are charged by the amounts of the object, and a placement does not change them.
"""

from collections.abc import Iterator
from typing import Final

from extender.settlement.allocated_devices.device_shares import (
    is_of_claims,
    node_of,
    parts_of_devices,
)
from extender.settlement.card_reconciler_context import SETTLED, CardReconcilerContext
from ledger.core.model.cards import HAMI, NodeCards, Stage
from ledger.core.model.commands import Advance, AnyCommand, Place, Unplace
from ledger.core.model.events import (
    AnyEvent,
    CardsRegistered,
    Cause,
    Committed,
    Observed,
    Placed,
    Released,
    Unplaced,
)
from ledger.core.model.state import Object
from ledger.tasks.periodic import CooperativeYield

Subject = tuple[str, str]
"""The namespace and the key of an object."""

UNKNOWN_MAX: Final = 10_000
"""Objects on cards that no node announces that are kept; a new active replica finds the others."""


class DevicePlacements:
    """Places the objects of one cluster on the cards that their devices are."""

    def __init__(self, context: CardReconcilerContext) -> None:
        self._context = context
        self._due: dict[Subject, None] = {}
        self._unknown: dict[Subject, str] = {}

    async def find(self) -> None:
        """Queue every object with devices."""
        stride, state = CooperativeYield(), self._context.view.state
        for namespace in [name for name in state.namespaces if self._context.owns(name)]:
            await stride.step()
            for key in self._with_devices(namespace):
                self._due[namespace, key] = None

    def follow(self, event: AnyEvent) -> None:
        """Queue the object of an event that may change its devices, its cards or their node."""
        if isinstance(event, Committed | Observed | Released | Placed | Unplaced):
            subject = event.namespace, event.key
            if self._concerns(*subject):
                self._due[subject] = None
            else:
                self._unknown.pop(subject, None)
        elif isinstance(event, CardsRegistered):
            for subject in [at for at, node in self._unknown.items() if node == event.node]:
                del self._unknown[subject]
                self._due[subject] = None

    async def settle(self) -> None:
        """Send the commands about the queued objects."""
        due, self._due = self._due, {}
        stride = CooperativeYield()
        for namespace, key in due:
            await stride.step()
            for command in self._commands(namespace, key):
                await self._context.commands.send(command)

    def _with_devices(self, namespace: str) -> list[str]:
        space = self._context.view.state.namespaces.get(namespace)
        entries = space.entries.items() if space is not None else ()
        return [key for key, entry in entries if entry.committed and entry.committed.devices]

    def _concerns(self, namespace: str, key: str) -> bool:
        """Return whether an object has devices, or had some when it was placed."""
        stored = self._stored(namespace, key)
        if stored is None:
            return False
        placed = self._context.placement(namespace, key)
        return bool(stored.devices) or (placed is not None and is_of_claims(placed.parts))

    def _stored(self, namespace: str, key: str) -> Object | None:
        entry = self._context.entry(namespace, key)
        return entry.committed if entry is not None else None

    def _commands(self, namespace: str, key: str) -> Iterator[AnyCommand]:
        """Yield the commands after which an object is on the cards that its devices are.

        Cards that an extender gave to the same pod stay: a pod has one placement. The end of an
        object releases its cards by itself.
        """
        stored, placed = self._stored(namespace, key), self._context.placement(namespace, key)
        if stored is None:
            return
        where = namespace, key, stored.uid
        name = node_of(stored.devices)
        node = self._context.view.state.nodes.get(name)
        parts = parts_of_devices(stored.devices, node, name)
        if _names_unknown_card(stored, node):
            self._keep_unknown((namespace, key), name)
        if placed is not None and placed.node:
            if placed.uid != stored.uid or not is_of_claims(placed.parts):
                return
            if (placed.node, placed.parts) == (name, parts):
                return
            yield Unplace(*where, placed.node, Cause.UNALLOCATED, SETTLED, bound=True)
        if parts and node is not None:
            yield Place(*where, name, parts, seen=True, actor=SETTLED)
            if node.keeper == HAMI:
                # HAMi's node hands out cards to one pod at a time, and waits for no claim.
                yield Advance(*where, Stage.ALLOCATED, actor=SETTLED, node=name)

    def _keep_unknown(self, subject: Subject, node: str) -> None:
        if subject in self._unknown or len(self._unknown) < UNKNOWN_MAX:
            self._unknown[subject] = node


def _names_unknown_card(stored: Object, node: NodeCards | None) -> bool:
    """Return whether a device names a card that its node does not have."""
    known = {card.uuid for card in (*node.cards, *node.lost)} if node is not None else ()
    return any(item.node and item.card and item.card not in known for item in stored.devices)
