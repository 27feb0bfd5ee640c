"""Envelope charges: what an object is charged, and what its pods add beyond its envelope.

A key is charged the largest of its stored object and its open attempts. A **unit** is a pod without
a root, a resource claim, or a root together with its pods. A root is charged the larger of its
envelope and its pods' sum, so a pod within the envelope adds no charge. The pods of an unknown root
count one by one. A line that selects counts a unit by the traits of its root, or of the pod without
a root.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ledger.core.evolve import device_bounds
from ledger.core.evolve.line_charges import InvariantError, Postings, post_change, post_lines
from ledger.core.model.amounts import Amounts, covers, largest, minus, plus, rise
from ledger.core.model.commands import BARRED
from ledger.core.model.state import (
    NOT_THERE,
    Draw,
    Entry,
    Hold,
    Namespace,
    Object,
    State,
    drop,
    put,
)
from ledger.core.model.traits import Traits, matches, united


class ChargeTerm(NamedTuple):
    """The traits that selecting lines compare, and the amounts that are charged.

    `asked` are the amounts on lines that count only reviewed demand, None when they are the same.
    """

    traits: Traits
    amounts: Amounts
    asked: Amounts | None = None

    def on(self, *, asked_only: bool) -> Amounts:
        """Return the amounts on a line."""
        return self.asked if asked_only and self.asked is not None else self.amounts


NOTHING: Final[Amounts] = {}
EMPTY: Final = Entry(None, (), NOTHING)

PODS: Final = "pods/"
"""How the keys of pods begin."""

RESOURCE_CLAIMS: Final = "resourceclaims.resource.k8s.io/"
"""How the keys of resource claims begin. They have no root and no pods that draw from them."""

_NO_ROOTS: Final = (PODS, RESOURCE_CLAIMS)

NO_DRAW: Final = Draw(NOTHING, NOTHING)


def is_root(key: str) -> bool:
    """Return whether a key is that of a root, whose demand is an envelope for pods."""
    return not key.startswith(_NO_ROOTS)


def entry_of(committed: Object | None, holds: tuple[Hold, ...]) -> Entry:
    """Return the entry of a key, charged the largest of the committed object and the holds.

    The entry draws from a root only while the object and all holds draw from it. So no charge ever
    rises because another attempt at the key has ended.
    """
    if committed is not None:
        charge, root, traits = committed.demand, committed.root, committed.traits
    elif len(holds) == 1:
        hold = holds[0]
        return Entry(None, holds, hold.demand, hold.root, hold.traits)
    elif holds:
        charge, root, traits = NOTHING, holds[0].root, holds[0].traits
    else:
        return EMPTY
    for hold in holds:
        charge = largest(charge, hold.demand)
        traits = united(traits, hold.traits)
        if hold.root != root:
            root = ""
    return Entry(committed, holds, charge, root, traits)


def is_barred(entry: Entry, uid: str) -> bool:
    """Return whether the object of this uid is barred from its envelope. It stays barred.

    Only the review of its creation showed its author. A later observation may come from a view that
    is older than the review.
    """
    return any(body.root == BARRED and body.uid == uid for body in entry.bodies())


def drawn_from(entry: Entry) -> str:
    """Return the key of the root that an entry draws from, empty when it draws from none."""
    return "" if entry.root == BARRED else entry.root


def asked_for(stored: Object | None, uid: str, held: Amounts) -> Amounts:
    """Return the requested part of the envelope of `uid`, with the demand of one of its holds.

    An update requests its increase. A part that was only observed stays unrequested where there is
    no room.
    """
    if stored is None or stored.uid != uid:
        return held
    known = stored.demand if stored.admitted is None else stored.admitted
    return plus(known, rise(stored.demand, held))


def usable(root: Entry) -> Amounts:
    """Return the amounts that pods may draw from a root: the requested part of its envelope.

    While the root is stored, an attempt to create another one under its name gives them nothing.
    """
    stored = root.committed
    amounts = NOTHING if stored is None else asked_for(stored, stored.uid, NOTHING)
    for hold in root.holds:
        if stored is None or hold.uid == stored.uid:
            amounts = largest(amounts, asked_for(stored, hold.uid, hold.demand))
    return amounts


def is_within_envelope(space: Namespace, root_key: str, demand: Amounts) -> bool:
    """Return whether a root's pods, with one more of this demand, take no more than is usable.

    Such a pod draws from the envelope and adds no charge.
    """
    root = space.entries.get(root_key)
    if root is None or drawn_from(root):
        return False
    draw, allowed = space.draws.get(root_key), usable(root)
    taken = demand if draw is None else plus(draw.charge, demand)
    return covers(allowed, taken)


def asked_only(root: Entry) -> Amounts | None:
    """Return the charge of a root without its unreviewed part, None when all was reviewed.

    Holds were reviewed in full, so this amount never rises because a hold ends.
    """
    stored = root.committed
    if stored is None or stored.admitted is None:
        return None
    charge = stored.admitted
    for hold in root.holds:
        charge = largest(charge, hold.demand)
    return charge


def terms(space: Namespace, unit: str) -> list[ChargeTerm]:
    """Return the charges of the unit at a key, none for a pod that draws from a root."""
    entry, draw = space.entries.get(unit), space.draws.get(unit)
    if entry is not None and drawn_from(entry):
        return []
    if entry is not None:
        asked = asked_only(entry)
        if draw is None:
            return [ChargeTerm(entry.traits, entry.charge, asked)]
        asked = None if asked is None else largest(asked, draw.charge)
        return [ChargeTerm(entry.traits, largest(entry.charge, draw.charge), asked)]
    if draw is None:
        return []
    if not space.selected:
        return [ChargeTerm((), draw.charge)]
    pods = (space.entries[member] for member in space.members[unit])
    return [ChargeTerm(pod.traits, pod.charge) for pod in pods]


def committed_terms(space: Namespace, unit: str) -> Iterator[ChargeTerm]:
    """Yield the part of a unit's charge that committed demand explains."""
    entry, draw = space.entries.get(unit), space.draws.get(unit)
    if entry is not None and drawn_from(entry):
        return
    if entry is not None:
        stored, taken = entry.committed, NOTHING if draw is None else draw.committed
        demand = NOTHING if stored is None else stored.demand
        asked = None if stored is None else stored.admitted
        yield ChargeTerm(
            entry.traits,
            largest(demand, taken) if taken else demand,
            largest(asked, taken) if asked is not None else None,
        )
    elif draw is not None and not space.selected:
        yield ChargeTerm((), draw.committed)
    elif draw is not None:
        for member in space.members[unit]:
            pod = space.entries[member]
            if pod.committed is not None:
                yield ChargeTerm(pod.traits, pod.committed.demand)


def units(space: Namespace) -> Iterator[str]:
    """Yield the keys of all units of a namespace."""
    for key, entry in space.entries.items():
        if not drawn_from(entry):
            yield key
    for root in space.draws:
        if root not in space.entries:
            yield root


def unit_of(key: str, entry: Entry) -> str:
    """Return the key of the unit that an entry belongs to."""
    return drawn_from(entry) or key


def by_line(space: Namespace, charge_terms: Iterable[ChargeTerm]) -> dict[int, int]:
    """Return the sum of terms on every line of the namespace that counts them."""
    totals: dict[int, int] = {}
    for term in charge_terms:
        for resource, line in space.plan.pairs():
            amounts = term.on(asked_only=line in space.asked_only)
            if resource in amounts:
                totals[line] = totals.get(line, 0) + amounts[resource]
        for resource, line, selection in space.selected:
            amounts = term.on(asked_only=line in space.asked_only)
            if resource in amounts and matches(selection, term.traits):
                totals[line] = totals.get(line, 0) + amounts[resource]
    return totals


def replace(
    state: State, space: Namespace, key: str, before: Entry, after: Entry, rule: int
) -> Postings:
    """Replace the entry of a key, and post the difference of the charges."""
    alone = not is_root(key)
    left = "" if before.root == BARRED else before.root
    joined = "" if after.root == BARRED else after.root
    if alone and not left and not joined and not space.selected:
        # The change concerns nothing but this key.
        postings = post_change(state, space.plan, before.charge, after.charge, rule)
        if after is EMPTY:
            drop(state, space.entries, key)
            return postings
        if state.journal is not None:
            old = NOT_THERE if before is EMPTY else before
            state.journal.append((space.entries, key, old))
        space.entries[key] = after
        return postings
    if joined and not key.startswith(PODS):
        raise InvariantError(f"{key} draws from {after.root} and is not a pod: no unit counts it")
    if before is EMPTY and is_within_envelope(space, joined, after.charge):
        # The root's charge covers what its pods may draw.
        _move(state, space, key, before, after)
        return []
    changed = dict.fromkeys((left or key, joined or key))
    old = [term for unit in changed for term in touched(space, unit, key)]
    _move(state, space, key, before, after)
    new = [term for unit in changed for term in touched(space, unit, key)]
    if old == new:
        return []
    return post_lines(state, by_line(space, old), by_line(space, new), rule, _selecting(space))


def replace_all(state: State, space: Namespace, changes: dict[str, Entry], rule: int) -> Postings:
    """Replace the entries of several keys, and post the difference as one change.

    The keys are those of a pod and of the root it draws from, or one key alone.
    """
    if len(changes) == 1:
        for key, after in changes.items():
            return replace(state, space, key, space.entries[key], after, rule)
    unit = next(unit_of(key, after) for key, after in changes.items() if drawn_from(after))
    old = terms(space, unit)
    for key, after in changes.items():
        before = space.entries[key]
        _move(state, space, key, before, after)
    new = terms(space, unit)
    return post_lines(state, by_line(space, old), by_line(space, new), rule, _selecting(space))


def _selecting(space: Namespace) -> set[int]:
    return {line for _, line, _ in space.selected}


def touched(space: Namespace, unit: str, key: str) -> list[ChargeTerm]:
    """Return the terms of a unit that a change of this key may alter.

    The pods of an unknown root count one by one. There may be very many, so only the changed pod is
    read.
    """
    if unit == key or unit in space.entries:
        return terms(space, unit)
    pod = space.entries.get(key)
    if pod is not None and drawn_from(pod) == unit:
        return [ChargeTerm(pod.traits, pod.charge)]
    return []


def with_pod(draw: Draw, entry: Entry) -> Draw:
    """Return the draw of a root's pods with one more."""
    return _combined(draw, entry, plus)


def _combined(draw: Draw, entry: Entry, combine: Callable[[Amounts, Amounts], Amounts]) -> Draw:
    """Return the draw of a root's pods after `plus` or `minus` of one pod."""
    charge, stored = combine(draw.charge, entry.charge), entry.committed
    if stored is None:
        return Draw(charge, draw.committed, draw.saved)
    committed = combine(draw.committed, stored.demand)
    if stored.bound is None:
        return Draw(charge, committed, draw.saved)
    return Draw(charge, committed, combine(draw.saved, device_bounds.saved(entry)))


def _move(state: State, space: Namespace, key: str, before: Entry, after: Entry) -> None:
    """Replace the entry of a key, and move its charge between the draws of the roots."""
    left, joined = drawn_from(before), drawn_from(after)
    lowered = raised = NO_DRAW
    if left:
        lowered = _combined(space.draws[left], before, minus)
    if joined:
        raised = with_pod(lowered if joined == left else space.draws.get(joined, NO_DRAW), after)
    if after.committed is None and not after.holds:
        drop(state, space.entries, key)
    else:
        put(state, space.entries, key, after)
    if left:
        drop(state, space.members[left], key)
        if space.members[left]:
            put(state, space.draws, left, lowered)
        else:
            drop(state, space.members, left)
            drop(state, space.draws, left)
    if joined:
        if joined not in space.members:
            put(state, space.members, joined, {})
        put(state, space.members[joined], key, None)
        put(state, space.draws, joined, raised)
    if raised.saved or lowered.saved or key in space.draws:
        _lower_envelopes(state, space, (left, joined, key))


def _lower_envelopes(state: State, space: Namespace, roots: tuple[str, ...]) -> None:
    """Lower the envelopes of roots by what the allocations of their pods have saved."""
    for root in roots:
        draw, entry = space.draws.get(root), space.entries.get(root)
        if draw is None or not draw.saved:
            continue
        if not is_root(root):
            raise InvariantError(f"pods draw from {root}, which is not a root")
        if entry is None or entry.committed is None:
            continue
        stored = device_bounds.lowered(entry.committed, draw)
        if stored is not entry.committed:
            put(state, space.entries, root, entry_of(stored, entry.holds))
