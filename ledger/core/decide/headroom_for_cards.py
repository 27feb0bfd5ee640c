"""Headroom for cards: how much an object may be charged before a quota is full.

Some amounts of a pod depend on its cards and are charged once the cards are chosen. The extender
needs the bound to choose cards within the quotas. `place` decides without it, by trying.
"""

from collections.abc import Iterator

from ledger.core.evolve.envelope_charges import ChargeTerm, asked_only, drawn_from
from ledger.core.model.state import Entry, Namespace, State
from ledger.core.model.traits import Traits, matches


def most(state: State, namespace: str, key: str, uid: str, resource: str) -> int | None:
    """Return the most of a resource that an object may be charged in all, in the resource's unit.

    It is at least the present charge. None without a bound, for an unknown object, and for one
    without any charge.
    """
    entry = state.entry(namespace, key)
    if entry is None or not entry.holds_uid(uid):
        return None
    space = state.namespaces[namespace]
    root = space.entries.get(drawn_from(entry))
    lines = list(_counting(space, entry.traits if root is None else root.traits, resource))
    if not lines or not entry.charge:
        return None
    free = [
        max(0, state.limit[line] - state.used[line])
        + (0 if root is None else _spare(space, drawn_from(entry), root, resource, line))
        for line in lines
    ]
    return entry.charge.get(resource, 0) + min(free)


def _counting(space: Namespace, traits: Traits, resource: str) -> Iterator[int]:
    """Yield the lines that count a resource of a unit with these traits."""
    for name, line in space.plan.pairs():
        if name == resource:
            yield line
    for name, line, selection in space.selected:
        if name == resource and matches(selection, traits):
            yield line


def _spare(space: Namespace, key: str, root: Entry, resource: str, line: int) -> int:
    """Return the part of a root's charge on a line that its pods do not draw."""
    taken = space.draws[key].charge.get(resource, 0)
    charged = ChargeTerm(root.traits, root.charge, asked_only(root)).on(
        asked_only=line in space.asked_only
    )
    return max(0, charged.get(resource, 0) - taken)
