"""Placement charges: what a placed pod is charged on its cards and on quotas.

A placement adds its bookings to the lines of its cards. On quotas the pod is charged the amounts
that its cards decided, until the pod ends. If that is less than the demand of its spec, the
envelope of its root falls by the same amounts. A placement ends when its pod no longer counts.
"""

from typing import Final

from msgspec import structs

from ledger.core.evolve import announced_and_lost_cards, preemption_claims, quota_coverage
from ledger.core.evolve.envelope_charges import NOTHING, drawn_from, entry_of, replace_all
from ledger.core.evolve.line_charges import (
    FALLING,
    TRUTH,
    WITHIN_LIMITS,
    InvariantError,
    Postings,
    post_lines,
)
from ledger.core.model import events
from ledger.core.model.amounts import Amounts, covers, largest, minus, smallest, without_zeros
from ledger.core.model.card_bookings import Bookings, booked
from ledger.core.model.cards import Placement, Stage
from ledger.core.model.state import Entry, Namespace, State, drop, put

_NOWHERE: Final[Bookings] = {}
_NO_LINES: Final = frozenset[int]()
_NOTHING_BOOKED: Final[dict[int, int]] = {}

_Standing = events.Placed | events.Advanced | events.Resized


def standing(space: Namespace, key: str, uid: str, demand: Amounts) -> Amounts:
    """Return the charged demand of a pod whose spec has this demand."""
    placed = space.placed.get(key)
    if placed is None or placed.uid != uid:
        return demand
    return _above(demand, placed.stands)


def placed(state: State, event: events.Placed, time: int, rule: int = WITHIN_LIMITS) -> Postings:
    """Apply a placement. An observed placement of another scheduler may exceed a limit."""
    space, entry = _pod(state, event.namespace, event.key, event.uid)
    bookings = booked(event.parts)
    before = space.placed.get(event.key)
    if before is not None and before.node:
        raise InvariantError(f"{event.key} is placed on {before.node} already")
    seen = event.cause == events.Cause.SEEN
    if seen:
        rule = TRUTH
    stage = Stage.BOUND if seen else Stage.PROPOSED
    after = Placement(
        event.uid,
        event.node,
        event.parts,
        event.stands,
        time,
        stage,
        observed=seen,
        version=event.version,
    )
    quotas = _stand(state, space, event, entry, rule)
    if state.claims:
        preemption_claims.end_claim(state, event.namespace, event.key)
    lines = _by_line(state, event.node, bookings)
    _put(state, space, (event.namespace, event.key), before, after)
    on_cards = post_lines(state, _NOTHING_BOOKED, lines, rule, _NO_LINES)
    return quota_coverage.in_order(quotas, on_cards) if quotas else on_cards


def advanced(state: State, event: events.Advanced, time: int) -> Postings:
    """Apply a later stage of a placement, and its lower charges."""
    space, entry = _pod(state, event.namespace, event.key, event.uid)
    before = _placement(space, event.key, event.uid)
    after = structs.replace(
        before,
        stage=event.stage,
        initialised=event.initialised,
        stands=event.stands,
        version=before.version if event.stage == Stage.PROPOSED else 0,
    )
    quotas = _stand(state, space, event, entry, FALLING)
    put(state, space.placed, event.key, after)
    cards = _book(state, before.node, bookings_of(before), bookings_of(after), FALLING)
    return quota_coverage.in_order(quotas, cards)


def resized(state: State, event: events.Resized, time: int, rule: int = WITHIN_LIMITS) -> Postings:
    """Apply other amounts of the same cards."""
    space, entry = _pod(state, event.namespace, event.key, event.uid)
    before = _placement(space, event.key, event.uid)
    after = structs.replace(before, parts=event.parts, stands=event.stands)
    quotas = _stand(state, space, event, entry, rule)
    put(state, space.placed, event.key, after)
    cards = _book(state, before.node, bookings_of(before), bookings_of(after), rule)
    return quota_coverage.in_order(quotas, cards)


def unplaced(state: State, event: events.Unplaced, time: int) -> Postings:
    """Apply the release of a pod's cards."""
    space, _ = _pod(state, event.namespace, event.key, event.uid)
    before = _placement(space, event.key, event.uid)
    return _leave(state, space, (event.namespace, event.key), before, before.stands)


def vacate(state: State, space: Namespace, place: tuple[str, str]) -> Postings:
    """End the placement and the claim at a key, once its pod no longer counts there."""
    namespace, key = place
    before = space.placed.get(key)
    claim = preemption_claims.claim_of(state, namespace, key) if state.claims else None
    if before is None and claim is None:
        return []
    entry = space.entries.get(key)
    uids = {body.uid for body in entry.bodies()} if entry is not None else set()
    if claim is not None and claim.uid not in uids:
        preemption_claims.end_claim(state, namespace, key)
    if before is None or before.uid in uids:
        return []
    return _leave(state, space, place, before, NOTHING)


def bookings_of(placement: Placement) -> Bookings:
    """Return the present bookings of a placement."""
    return booked(placement.parts, initialised=placement.initialised)


def _pod(state: State, namespace: str, key: str, uid: str) -> tuple[Namespace, Entry]:
    entry = state.entry(namespace, key)
    if entry is None or not entry.holds_uid(uid):
        raise InvariantError(f"{namespace}/{key} is not a known pod of uid {uid}")
    return state.namespaces[namespace], entry


def _placement(space: Namespace, key: str, uid: str) -> Placement:
    placement = space.placed.get(key)
    if placement is None or placement.uid != uid or not placement.node:
        raise InvariantError(f"{key} of {uid} is not placed")
    return placement


def _put(
    state: State,
    space: Namespace,
    place: tuple[str, str],
    before: Placement | None,
    after: Placement | None,
) -> None:
    """Replace the placement of a key, and index it by node."""
    if before is not None and before.node:
        drop(state, state.residents[before.node], place)
    if after is None:
        drop(state, space.placed, place[1])
        return
    put(state, space.placed, place[1], after)
    if after.node:
        put(state, state.residents[after.node], place, None)


def _leave(
    state: State, space: Namespace, place: tuple[str, str], before: Placement, stands: Amounts
) -> Postings:
    """Take a pod off its node; keep the amounts that its cards decided."""
    rest = (
        structs.replace(before, node="", parts=(), stage=Stage.PROPOSED, version=0)
        if stands
        else None
    )
    _put(state, space, place, before, rest)
    if not before.node:
        return []
    postings = _book(state, before.node, bookings_of(before), _NOWHERE, FALLING)
    announced_and_lost_cards.close_lost(state, before.node)
    return postings


def _book(state: State, node: str, before: Bookings, after: Bookings, rule: int) -> Postings:
    """Post the difference of bookings on a node's cards."""
    old, new = _by_line(state, node, before), _by_line(state, node, after)
    return post_lines(state, old, new, rule, _NO_LINES)


def _by_line(state: State, node: str, bookings: Bookings) -> dict[int, int]:
    return {
        line: amount
        for uuid, booking in bookings.items()
        for line, amount in zip(state.card_lines[node, uuid], booking, strict=True)
    }


def _stand(state: State, space: Namespace, event: _Standing, entry: Entry, rule: int) -> Postings:
    """Charge a pod the amounts that its cards decided, and lower its root's envelope."""
    if not event.stands:
        return []
    after = _restated(entry, event.uid, event.stands)
    if after == entry:
        return []
    changes = {event.key: after}
    root = drawn_from(entry)
    known = space.entries.get(root) if root else None
    if known is not None and known.committed is not None:
        changes[root] = _lowered(space, root, known, entry, after)
    return replace_all(state, space, changes, rule)


def _above(demand: Amounts, stands: Amounts) -> Amounts:
    """Return a demand with the amounts that the cards decided, unchanged when it is empty.

    A pod whose spec demands nothing, or that has ended, is charged nothing on any card.
    """
    return without_zeros({**demand, **stands}) if demand and stands else demand


def _restated(entry: Entry, uid: str, stands: Amounts) -> Entry:
    """Return an entry in which only the pod of this uid demands the amounts its cards decided."""
    committed = entry.committed
    if committed is not None and committed.uid == uid:
        committed = structs.replace(committed, demand=_above(committed.demand, stands))
    holds = tuple(
        structs.replace(hold, demand=_above(hold.demand, stands)) if hold.uid == uid else hold
        for hold in entry.holds
    )
    return entry_of(committed, holds)


def _lowered(space: Namespace, root: str, known: Entry, before: Entry, after: Entry) -> Entry:
    """Return a root's entry with an envelope lowered by the reduction of one of its pods.

    The envelope does not fall below the draw of the pods, which was lowered for them already.
    """
    stored = known.committed
    assert stored is not None, "only what is committed is lowered"
    saved = minus(before.charge, smallest(before.charge, after.charge))
    if not saved:
        return known
    taken = space.draws[root].charge
    pods = {name: amount - saved.get(name, 0) for name, amount in taken.items()}

    def less(demand: Amounts) -> Amounts:
        reduced = minus(demand, smallest(demand, saved))
        return without_zeros(smallest(demand, largest(reduced, pods)))

    demand = less(stored.demand)
    admitted = None if stored.admitted is None else less(stored.admitted)
    if admitted is not None and covers(admitted, demand):
        admitted = None
    return entry_of(structs.replace(stored, demand=demand, admitted=admitted), known.holds)
