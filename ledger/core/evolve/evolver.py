"""Evolver: `evolve` applies one event to the state. The only place that changes an account.

Returns the event's **postings**: a flat list `[line, delta, used after, …]` of every line whose
used amount changed, in order of line numbers. A record stores them beside the event, and a replay
compares them: a fold that leads to other balances stops there.
"""

from collections.abc import Callable
from typing import Any, Final

from msgspec import structs

from ledger.core.evolve import placement_events, quota_coverage
from ledger.core.evolve.envelope_charges import (
    EMPTY,
    FALLING,
    NOTHING,
    PODS,
    TRUTH,
    WITHIN_LIMITS,
    InvariantError,
    Postings,
    asked_for,
    by_line,
    drawn_from,
    entry_of,
    merged,
    post_lines,
    replace,
    terms,
)
from ledger.core.model import events
from ledger.core.model.amounts import Amounts, covers, largest, minus, smallest
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
    hold = Hold(
        event.uid,
        event.base,
        event.demand,
        time,
        event.stamp,
        event.owner,
        event.actor,
        0,
        event.root,
        event.traits,
    )
    entry = space.entries.get(event.key)
    if entry is None:
        entry, after = EMPTY, Entry(None, (hold,), event.demand, event.root, event.traits)
    else:
        after = entry_of(entry.committed, (*entry.holds, hold))
    if event.base == 0 and event.owner:
        put(state, space.owners, event.owner, space.owners.get(event.owner, 0) + 1)
    rule = TRUTH if event.forced else WITHIN_LIMITS
    postings = replace(state, space, event.key, entry, after, rule)
    if after.committed is not None and after.committed.admitted is not None:
        _grant(state, space, event)
    return postings


def _raised(state: State, event: events.Raised, time: int) -> Postings:
    space, entry = _entry(state, event.namespace, event.key)
    hold = _hold(entry, event.uid, event.base)
    raised = Hold(
        hold.uid,
        hold.base,
        event.demand,
        time,
        hold.stamp,
        hold.owner,
        hold.actor,
        hold.raises + 1,
        hold.root,
        event.traits,
    )
    holds = tuple(raised if one is hold else one for one in entry.holds)
    rule = TRUTH if event.forced else WITHIN_LIMITS
    postings = replace(state, space, event.key, entry, entry_of(entry.committed, holds), rule)
    _grant(state, space, event)
    return postings


def _grant(state: State, space: Namespace, event: events.Reserved | events.Raised) -> None:
    """Admit the requested part of an envelope that was only observed, if there is room."""
    entry = space.entries[event.key]
    stored = entry.committed
    if stored is None or stored.admitted is None or stored.uid != event.uid:
        return
    counting = by_line(space, terms(space, event.key))
    if event.forced or all(state.used[line] <= state.limit[line] for line in counting):
        asked = largest(stored.admitted, smallest(event.demand, stored.demand))
        _admit(state, space, event.key, entry, asked)


def _admit(state: State, space: Namespace, key: str, root: Entry, asked: Amounts) -> None:
    """Set the admitted part of a root's committed envelope."""
    stored = root.committed
    assert stored is not None, "what is only held was asked for"
    admitted = None if covers(asked, stored.demand) else asked
    committed = structs.replace(stored, admitted=admitted)
    put(state, space.entries, key, structs.replace(root, committed=committed))


def _committed(state: State, event: events.Committed, time: int) -> Postings:
    space, entry = _entry(state, event.namespace, event.key)
    holds, demand, held = entry.holds, event.demand, NOTHING
    known: Hold | Object | None = entry.committed
    if event.base != events.NO_HOLD:
        known = hold = _hold(entry, event.uid, event.base)
        holds, held = _end_hold(state, space, entry, hold), hold.demand
        if demand is None:
            demand = hold.demand
    if demand is None:
        raise InvariantError(f"a commit of {event.key} names neither a hold nor a demand")
    # Records of schema 1 also commit demand that only another object's hold had room for.
    root, traits = (known.root, known.traits) if known is not None else ("", ())
    committed = Object(
        event.uid,
        event.version,
        demand,
        time,
        root,
        traits,
        event.generation,
        _admitted(entry, event, held, demand),
    )
    return replace(state, space, event.key, entry, entry_of(committed, holds), FALLING)


def _observed(state: State, event: events.Observed, time: int) -> Postings:
    space = state.namespaces.get(event.namespace)
    if space is None:
        space = quota_coverage.open_namespace(state, event.namespace)
    entry = space.entries.get(event.key, EMPTY)
    holds, held = entry.holds, NOTHING
    if event.base != events.NO_HOLD:
        hold = _hold(entry, event.uid, event.base)
        holds, held = _end_hold(state, space, entry, hold), hold.demand
    committed = Object(
        event.uid,
        event.version,
        event.demand,
        time,
        event.root,
        event.traits,
        event.generation,
        _admitted(entry, event, held, event.demand),
    )
    after = entry_of(committed, holds)
    postings = replace(state, space, event.key, entry, after, TRUTH)
    left = drawn_from(entry)
    if left and drawn_from(after) != left:
        return merged(postings, _take_along(state, space, left, entry.charge))
    return postings


def _admitted(
    entry: Entry, event: events.Committed | events.Observed, held: Amounts, demand: Amounts
) -> Amounts | None:
    """Return the requested part of an observed envelope, None when that is all of it."""
    if event.key.startswith(PODS):
        return None
    asked = asked_for(entry.committed, event.uid, held)
    return None if covers(asked, demand) else smallest(asked, demand)


def _take_along(state: State, space: Namespace, left: str, charge: Amounts) -> Postings:
    """Reduce the admitted part of a root by the charge of a pod that left it and runs on.

    The root will create another pod in its place. Otherwise any number of pods, one after the
    other, could run on the admission of one envelope.
    """
    root = space.entries.get(left)
    if root is None or root.committed is None:
        return []
    asked = asked_for(root.committed, root.committed.uid, NOTHING)
    before = by_line(space, terms(space, left))
    _admit(state, space, left, root, minus(asked, smallest(asked, charge)))
    return post_lines(state, before, by_line(space, terms(space, left)), FALLING, set())


def _released(state: State, event: events.Released, time: int) -> Postings:
    space, entry = _entry(state, event.namespace, event.key)
    committed, holds = entry.committed, entry.holds
    if event.base == events.OBJECT:
        if committed is None or committed.uid != event.uid:
            raise InvariantError(f"{event.key} has no object {event.uid} to release")
        committed = None
    else:
        holds = _end_hold(state, space, entry, _hold(entry, event.uid, event.base))
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
    vacated = placement_events.vacate(state, space, (event.namespace, event.key))
    return quota_coverage.in_order(postings, vacated) if vacated else postings


def _limit_set(state: State, event: events.LimitSet, time: int) -> Postings:
    before = state.accounts.get(event.account)
    for line in event.lines:
        quota_coverage.set_line(state, event.account, line)
    lines = {line.key: line.number for line in event.lines}
    covers = event.covers
    if event.reach is not None:
        covers = quota_coverage.reached(state, event.reach)
    after = Account(covers, lines, event.version, event.reach, event.selects, event.asked_only)
    quota_coverage.put_account(state, event.account, after)
    others = [one for one in quota_coverage.number(state, event.labels) if one != event.account]
    if before is not None and before.selects:
        quota_coverage.forget_labels(state)
    old_lines = set(before.lines.values()) if before else set()
    is_elsewhere = (
        before is None
        or bool(event.labels)
        or (before.covers, before.selects) != (covers, event.selects)
        or before.asked_only != event.asked_only
    )
    new_lines = set(lines.values()) - (set() if is_elsewhere else old_lines)
    closed = old_lines - set(lines.values())
    if new_lines or closed or is_elsewhere:
        quota_coverage.cover(state, event.account, {*covers, *(before.covers if before else ())})
    ended = quota_coverage.close(state, sorted(closed))
    counted = [quota_coverage.count_again(state, one) for one in others]
    return quota_coverage.in_order(
        ended, quota_coverage.recount(state, covers, sorted(new_lines)), *counted
    )


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
    events.CardsRegistered: placement_events.cards_registered,
    events.NodeRemoved: placement_events.node_removed,
    events.Placed: placement_events.placed,
    events.Advanced: placement_events.advanced,
    events.Unplaced: placement_events.unplaced,
    events.Resized: placement_events.resized,
    events.Claimed: placement_events.claimed,
    events.Withdrawn: placement_events.withdrawn,
}


def _entry(state: State, namespace: str, key: str) -> tuple[Namespace, Entry]:
    entry = state.entry(namespace, key)
    if entry is None:
        raise InvariantError(f"{namespace}/{key} holds nothing")
    return state.namespaces[namespace], entry


def _hold(entry: Entry, uid: str, base: int) -> Hold:
    for hold in entry.holds:
        if hold.uid == uid and hold.base == base:
            return hold
    raise InvariantError(f"there is no hold ({uid}, {base})")


def _end_hold(state: State, space: Namespace, entry: Entry, hold: Hold) -> tuple[Hold, ...]:
    """Return the entry's holds without this one, and count one open hold less of its owner."""
    if hold.base == 0 and hold.owner:
        remaining = space.owners[hold.owner] - 1
        if remaining:
            put(state, space.owners, hold.owner, remaining)
        else:
            drop(state, space.owners, hold.owner)
    if len(entry.holds) == 1:
        return ()
    return tuple(one for one in entry.holds if one is not hold)
