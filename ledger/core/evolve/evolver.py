"""Evolver: `evolve` applies one event to the state, and no other code changes an account.

It returns the event's **postings**: a flat list `[line, delta, used after, …]` of every line whose
used amount changed, in order of line numbers. A record stores them beside the event. A replay
compares them, and stops when the balances differ.
"""

from collections.abc import Callable
from typing import Any, Final

from ledger.core.evolve import (
    announced_and_lost_cards,
    device_bounds,
    envelope_admission,
    placement_charges,
    preemption_claims,
    quota_coverage,
)
from ledger.core.evolve.envelope_charges import EMPTY, NOTHING, drawn_from, entry_of, replace
from ledger.core.evolve.line_charges import (
    FALLING,
    TRUTH,
    WITHIN_LIMITS,
    InvariantError,
    Postings,
    merged,
)
from ledger.core.model import events
from ledger.core.model.interning import (
    interned_amounts,
    interned_source,
    interned_text,
    interned_traits,
)
from ledger.core.model.state import (
    NOT_THERE,
    Account,
    Ended,
    Entry,
    Hold,
    Namespace,
    Object,
    State,
    drop,
    put,
)

__all__ = ["REMEMBERED", "InvariantError", "Postings", "evolve"]

REMEMBERED: Final = frozenset(
    {
        events.Cause.ABSENT,
        events.Cause.SUPERSEDED,
        events.Cause.OPERATOR,
        events.Cause.DELETED,
        events.Cause.FINISHED,
    }
)
"""Causes after which an observation of the same uid is either late or stale."""


def evolve(state: State, event: events.AnyEvent, time: int) -> Postings:
    """Apply an event at a record's time, in µs of Unix time, and return its postings.

    Raises InvariantError when the event cannot have been decided on this state.
    """
    return _APPLY[type(event)](state, event, time)


def _reserved(state: State, event: events.Reserved, time: int) -> Postings:
    space = state.namespaces.get(event.namespace)
    if space is None:
        space = quota_coverage.open_namespace(state, event.namespace)
    key, demand, base = event.key, interned_amounts(event.demand), event.base
    source = interned_source(event.owner, event.actor, event.root, event.traits)
    owner, actor, root, traits = source
    hold = Hold(event.uid, base, demand, time, event.stamp, owner, actor, 0, root, traits)
    entry = space.entries.get(key)
    rule = TRUTH if event.forced else WITHIN_LIMITS
    if entry is None:
        after = Entry(None, (hold,), demand, root, traits)
        postings = replace(state, space, key, EMPTY, after, rule)
    else:
        after = entry_of(entry.committed, (*entry.holds, hold))
        postings = replace(state, space, key, entry, after, rule)
        if after.committed is not None and after.committed.admitted is not None:
            envelope_admission.admit_requested(state, space, event)
    if owner and base == 0:
        owners = space.owners
        open_holds = owners.get(owner)
        if state.journal is not None:
            old = NOT_THERE if open_holds is None else open_holds
            state.journal.append((owners, owner, old))
        owners[owner] = 1 if open_holds is None else open_holds + 1
    return postings


def _raised(state: State, event: events.Raised, time: int) -> Postings:
    space, entry = _entry(state, event.namespace, event.key)
    hold = _hold(entry, event.uid, event.base)
    raised = Hold(
        hold.uid,
        hold.base,
        interned_amounts(event.demand),
        time,
        hold.stamp,
        hold.owner,
        hold.actor,
        hold.raises + 1,
        hold.root,
        interned_traits(event.traits),
    )
    holds = tuple(raised if current is hold else current for current in entry.holds)
    rule = TRUTH if event.forced else WITHIN_LIMITS
    postings = replace(state, space, event.key, entry, entry_of(entry.committed, holds), rule)
    envelope_admission.admit_requested(state, space, event)
    return postings


def _committed(state: State, event: events.Committed, time: int) -> Postings:
    space, entry = _entry(state, event.namespace, event.key)
    holds, demand, held = entry.holds, event.demand, NOTHING
    known: Hold | Object | None = entry.committed
    if event.base != events.NO_HOLD:
        known, holds = _end_hold(state, space, entry, event.uid, event.base)
        held = known.demand
        if demand is None:
            demand = held
    if demand is None:
        raise InvariantError(f"a commit of {event.key} names neither a hold nor a demand")
    # Records of schema 1 also commit demand that only another object's hold had room for.
    charge, bound = device_bounds.charged(entry.committed, event, held, demand)
    root, traits = (known.root, known.traits) if known is not None else ("", ())
    committed = Object(
        event.uid,
        event.version,
        charge if charge is held else interned_amounts(charge),
        time,
        root,
        traits,
        event.generation,
        envelope_admission.admitted_part(entry, event, held, charge),
        event.devices,
        bound,
    )
    return replace(state, space, event.key, entry, entry_of(committed, holds), FALLING)


def _observed(state: State, event: events.Observed, time: int) -> Postings:
    space = state.namespaces.get(event.namespace)
    if space is None:
        space = quota_coverage.open_namespace(state, event.namespace)
    entry = space.entries.get(event.key, EMPTY)
    holds, held = entry.holds, NOTHING
    if event.base != events.NO_HOLD:
        hold, holds = _end_hold(state, space, entry, event.uid, event.base)
        held = hold.demand
    charge, bound = device_bounds.charged(entry.committed, event, held, event.demand)
    committed = Object(
        event.uid,
        event.version,
        interned_amounts(charge),
        time,
        interned_text(event.root),
        interned_traits(event.traits),
        event.generation,
        envelope_admission.admitted_part(entry, event, held, charge),
        event.devices,
        bound,
    )
    after = entry_of(committed, holds)
    postings = replace(state, space, event.key, entry, after, TRUTH)
    left = drawn_from(entry)
    if left and drawn_from(after) != left:
        lowered = envelope_admission.lower_admitted_for_released_pod(
            state, space, left, entry.charge
        )
        return merged(postings, lowered)
    return postings


def _released(state: State, event: events.Released, time: int) -> Postings:
    space, entry = _entry(state, event.namespace, event.key)
    committed, holds = entry.committed, entry.holds
    if event.base == events.OBJECT:
        if committed is None or committed.uid != event.uid:
            raise InvariantError(f"{event.key} has no object {event.uid} to release")
        committed = None
    else:
        _, holds = _end_hold(state, space, entry, event.uid, event.base)
    if event.base <= 0 and event.cause in REMEMBERED:
        if event.uid not in state.ended:
            if state.journal is not None:
                state.journal.append((state.ended_order, len(state.ended_order), NOT_THERE))
            state.ended_order.append(event.uid)
        put(state, state.ended, event.uid, Ended(event.cause, event.version))
    after = entry_of(committed, holds)
    postings = replace(state, space, event.key, entry, after, FALLING)
    if event.key not in space.placed and not state.claims:
        return postings
    vacated = placement_charges.vacate(state, space, (event.namespace, event.key))
    return quota_coverage.in_order(postings, vacated) if vacated else postings


def _limit_set(state: State, event: events.LimitSet, time: int) -> Postings:
    before = state.accounts.get(event.account)
    lines = quota_coverage.set_lines(state, event.account, event.lines)
    covers = event.covers
    if event.reach is not None:
        covers = quota_coverage.reached(state, event.reach)
    after = Account(covers, lines, event.version, event.reach, event.selects, event.asked_only)
    quota_coverage.put_account(state, event.account, after)
    others = [
        account
        for account in quota_coverage.number(state, event.labels)
        if account != event.account
    ]
    if before is None:
        quota_coverage.cover(state, event.account, covers)
        new_lines, closed = set(lines.values()), set[int]()
    else:
        new_lines, closed = _cover_again(state, event, before, after)
    ended = quota_coverage.close(state, sorted(closed)) if closed else []
    counted = [quota_coverage.count_again(state, account) for account in others]
    opened = quota_coverage.recount(state, covers, new_lines)
    return quota_coverage.in_order(ended, opened, *counted) if ended or counted else opened


def _cover_again(
    state: State, event: events.LimitSet, before: Account, after: Account
) -> tuple[set[int], set[int]]:
    """Cover the namespaces of a changed account; return the lines to recount and to close."""
    if before.selects:
        quota_coverage.forget_labels(state)
    old_lines, lines = set(before.lines.values()), set(after.lines.values())
    is_elsewhere = (
        bool(event.labels)
        or (before.covers, before.selects) != (after.covers, after.selects)
        or before.asked_only != after.asked_only
    )
    new_lines = lines if is_elsewhere else lines - old_lines
    closed = old_lines - lines
    if new_lines or closed or is_elsewhere:
        quota_coverage.cover(state, event.account, {*after.covers, *before.covers})
    return new_lines, closed


def _account_closed(state: State, event: events.AccountClosed, time: int) -> Postings:
    account = state.accounts.get(event.account)
    if account is None:
        raise InvariantError(f"{event.account} is not open")
    quota_coverage.drop_account(state, event.account)
    if account.selects:
        quota_coverage.forget_labels(state)
    quota_coverage.cover(state, event.account, account.covers)
    return quota_coverage.close(state, sorted(account.lines.values()))


def _described(state: State, event: events.Described, time: int) -> Postings:
    if event.traits:
        put(state, state.described, event.subject, event.traits)
    else:
        drop(state, state.described, event.subject)
        drop(state, state.described_at, event.subject)
    if event.traits and event.version:
        put(state, state.described_at, event.subject, event.version)
    if "/" in event.subject:
        quota_coverage.open_namespace(state, event.subject)
        return quota_coverage.reassign(state, [event.subject])
    mine = f"{event.subject}/"
    return quota_coverage.reassign(
        state, [name for name in state.namespaces if name.startswith(mine)]
    )


def _cluster_registered(state: State, event: events.ClusterRegistered, time: int) -> Postings:
    put(state, state.clusters, event.cluster, event.uid)
    return []


_APPLY: Final[dict[type, Callable[[State, Any, int], Postings]]] = {
    events.Reserved: _reserved,
    events.Raised: _raised,
    events.Committed: _committed,
    events.Observed: _observed,
    events.Released: _released,
    events.LimitSet: _limit_set,
    events.AccountClosed: _account_closed,
    events.ClusterRegistered: _cluster_registered,
    events.Described: _described,
    events.CardsRegistered: announced_and_lost_cards.cards_registered,
    events.NodeRemoved: announced_and_lost_cards.node_removed,
    events.Placed: placement_charges.placed,
    events.Advanced: placement_charges.advanced,
    events.Unplaced: placement_charges.unplaced,
    events.Resized: placement_charges.resized,
    events.Claimed: preemption_claims.claimed,
    events.Withdrawn: preemption_claims.withdrawn,
}


def _entry(state: State, namespace: str, key: str) -> tuple[Namespace, Entry]:
    space = state.namespaces.get(namespace)
    entry = space.entries.get(key) if space is not None else None
    if space is None or entry is None:
        raise InvariantError(f"{namespace}/{key} holds nothing")
    return space, entry


def _hold(entry: Entry, uid: str, base: int) -> Hold:
    for hold in entry.holds:
        if hold.uid == uid and hold.base == base:
            return hold
    raise _no_hold(uid, base)


def _end_hold(
    state: State, space: Namespace, entry: Entry, uid: str, base: int
) -> tuple[Hold, tuple[Hold, ...]]:
    """Return the hold `(uid, base)` and the others; count one open hold less of its owner."""
    holds = entry.holds
    hold = holds[0] if len(holds) == 1 else _hold(entry, uid, base)
    if hold.uid != uid or hold.base != base:
        raise _no_hold(uid, base)
    owner = hold.owner
    if base == 0 and owner:
        owners = space.owners
        open_holds = owners[owner]
        if state.journal is not None:
            state.journal.append((owners, owner, open_holds))
        if open_holds == 1:
            del owners[owner]
        else:
            owners[owner] = open_holds - 1
    if len(holds) == 1:
        return hold, ()
    return hold, tuple(other for other in holds if other is not hold)


def _no_hold(uid: str, base: int) -> InvariantError:
    return InvariantError(f"there is no hold ({uid}, {base})")
