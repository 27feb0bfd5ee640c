"""`evolve`: apply one event to the state. The only place that changes an account.

Returns the event's **postings**: a flat list `[line, delta, used after, …]` of every line whose
used amount changed, in order of line numbers. A record stores them beside the event, and a replay
compares: a fold that would come to other balances stops there instead of going on.
"""

from collections.abc import Callable
from typing import Any, Final

from ledger.core import accounts, events
from ledger.core.amounts import Amounts, largest
from ledger.core.state import (
    NOT_THERE,
    POSTINGS,
    Account,
    Ended,
    Entry,
    Hold,
    Namespace,
    Object,
    State,
    take_back,
)

Postings = list[int]

NOTHING: Final[Amounts] = {}

REMEMBERED: Final = frozenset(
    {
        events.Cause.ABSENT,
        events.Cause.SUPERSEDED,
        events.Cause.OPERATOR,
        events.Cause.DELETED,
        events.Cause.FINISHED,
    }
)
"""Causes after which news of the same uid is either late truth or stale."""


class InvariantError(Exception):
    """An event contradicts the state it is applied to: the log or the code is wrong."""


def evolve(state: State, event: events.AnyEvent, time: int) -> Postings:
    """Apply an event at a record's time, in µs of Unix time, and return its postings.

    Raises InvariantError when the event cannot have been decided on this state.
    """
    return _APPLY[type(event)](state, event, time)


def charge_of(committed: Object | None, holds: tuple[Hold, ...]) -> Amounts:
    """Return what a key is charged: the largest of what is committed and what is held."""
    charge = committed.demand if committed is not None else NOTHING
    for hold in holds:
        charge = largest(charge, hold.demand)
    return charge


def _reserved(state: State, event: events.Reserved, time: int) -> Postings:
    space = state.namespaces.get(event.namespace)
    if space is None:
        space = _open_namespace(state, event.namespace)
    entries = space.entries
    entry = entries.get(event.key)
    hold = Hold(event.uid, event.base, event.demand, time, event.stamp, event.owner, event.actor)
    if entry is None:
        before, after = NOTHING, Entry(None, (hold,), event.demand)
    else:
        before = entry.charge
        after = Entry(entry.committed, (*entry.holds, hold), largest(entry.charge, event.demand))
    _put(state, entries, event.key, after)
    if event.base == 0:
        _index(state, space, event.key, hold)
    return _post(state, space, before, after.charge, _WITHIN_LIMITS)


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
    )
    holds = tuple(raised if one is hold else one for one in entry.holds)
    return _replace(state, space, event.key, entry, entry.committed, holds, _WITHIN_LIMITS)


def _committed(state: State, event: events.Committed, time: int) -> Postings:
    space, entry = _entry(state, event.namespace, event.key)
    holds, demand = entry.holds, event.demand
    if event.base != events.NO_HOLD:
        hold = _hold(entry, event.uid, event.base)
        holds = _end_hold(state, space, entry, hold)
        if demand is None:
            demand = hold.demand
    if demand is None:
        raise InvariantError(f"a commit of {event.key} names neither a hold nor a demand")
    committed = Object(event.uid, event.version, demand, time)
    return _replace(state, space, event.key, entry, committed, holds, _FALLING)


def _observed(state: State, event: events.Observed, time: int) -> Postings:
    space = state.namespaces.get(event.namespace)
    if space is None:
        space = _open_namespace(state, event.namespace)
    entry = space.entries.get(event.key, _EMPTY_ENTRY)
    holds = entry.holds
    if event.base != events.NO_HOLD:
        holds = _end_hold(state, space, entry, _hold(entry, event.uid, event.base))
    committed = Object(event.uid, event.version, event.demand, time)
    return _replace(state, space, event.key, entry, committed, holds, _TRUTH)


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
        _remember(state, event.uid, Ended(event.cause, event.version))
    return _replace(state, space, event.key, entry, committed, holds, _FALLING)


def _limit_set(state: State, event: events.LimitSet, time: int) -> Postings:
    before = state.accounts.get(event.account)
    for line in event.lines:
        _set_line(state, event.account, line)
    lines = {line.key: line.number for line in event.lines}
    _put(state, state.accounts, event.account, Account(event.covers, lines))
    old_lines = set(before.lines.values()) if before else set()
    recount = set(lines.values()) - old_lines
    if before is None or before.covers != event.covers:
        recount = set(lines.values())
    closed = old_lines - set(lines.values())
    if recount or closed:
        _cover(state, event.account, {*event.covers, *(before.covers if before else ())})
    return _recount(state, event.covers, sorted(recount | closed), closed)


def _account_closed(state: State, event: events.AccountClosed, time: int) -> Postings:
    account = state.accounts.get(event.account)
    if account is None:
        raise InvariantError(f"{event.account} is not open")
    _drop(state, state.accounts, event.account)
    _cover(state, event.account, set(account.covers))
    closed = set(account.lines.values())
    return _recount(state, (), sorted(closed), closed)


def _cluster_registered(state: State, event: events.ClusterRegistered, time: int) -> Postings:
    _put(state, state.clusters, event.cluster, event.uid)
    return []


_TRUTH: Final = 0
"""A charge that may go over a limit: what exists is charged."""
_WITHIN_LIMITS: Final = 1
"""A charge that may rise up to the limit."""
_FALLING: Final = 2
"""A charge that may not rise."""

_EMPTY_ENTRY: Final = Entry(None, (), NOTHING)

_APPLY: Final[dict[type, Callable[[State, Any, int], Postings]]] = {
    events.Reserved: _reserved,
    events.Raised: _raised,
    events.Committed: _committed,
    events.Observed: _observed,
    events.Released: _released,
    events.LimitSet: _limit_set,
    events.AccountClosed: _account_closed,
    events.ClusterRegistered: _cluster_registered,
}


def _post(state: State, space: Namespace, before: Amounts, after: Amounts, rule: int) -> Postings:
    """Charge the difference to every line of the namespace and return the postings.

    Raises InvariantError, with nothing charged, when a line would break the rule.
    """
    postings: Postings = []
    if before is after:
        return postings
    used, limit = state.used, state.limit
    for resource, line in space.plan:
        delta = after.get(resource, 0)
        if resource in before:
            delta -= before[resource]
        if delta:
            new = used[line] + delta
            if new < 0 or (delta > 0 and rule and (rule == _FALLING or new > limit[line])):
                take_back(used, postings)
                account, key = state.names[line]
                raise InvariantError(
                    f"{key} of {account} would go from {used[line]} to {new}"
                    f" with a limit of {limit[line]}"
                )
            used[line] = new
            postings += (line, delta, new)
    if state.journal is not None and postings:
        state.journal.append((used, POSTINGS, postings))
    return postings


def _replace(
    state: State,
    space: Namespace,
    key: str,
    entry: Entry,
    committed: Object | None,
    holds: tuple[Hold, ...],
    rule: int,
) -> Postings:
    """Put a key's new committed object and holds, and post the change of its charge."""
    if committed is None and not holds:
        _drop(state, space.entries, key)
        charge = NOTHING
    else:
        charge = charge_of(committed, holds)
        _put(state, space.entries, key, Entry(committed, holds, charge))
    return _post(state, space, entry.charge, charge, rule)


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
    raise InvariantError(f"there is no hold ({uid}, {base})")


def _end_hold(state: State, space: Namespace, entry: Entry, hold: Hold) -> tuple[Hold, ...]:
    """Return the entry's holds without this one, which also leaves the indexes."""
    if hold.stamp and space.stamps.get(hold.stamp, ("", ""))[1] == hold.uid:
        _drop(state, space.stamps, hold.stamp)
    if hold.base == 0 and hold.owner:
        remaining = space.owners[hold.owner] - 1
        if remaining:
            _put(state, space.owners, hold.owner, remaining)
        else:
            _drop(state, space.owners, hold.owner)
    if len(entry.holds) == 1:
        return ()
    return tuple(one for one in entry.holds if one is not hold)


def _index(state: State, space: Namespace, key: str, hold: Hold) -> None:
    if hold.stamp:
        _put(state, space.stamps, hold.stamp, (key, hold.uid))
    if hold.owner:
        _put(state, space.owners, hold.owner, space.owners.get(hold.owner, 0) + 1)


def _remember(state: State, uid: str, ended: Ended) -> None:
    if uid not in state.ended:
        if state.journal is not None:
            state.journal.append((state.ended_order, len(state.ended_order), NOT_THERE))
        state.ended_order.append(uid)
    _put(state, state.ended, uid, ended)


def _set_line(state: State, account: str, line: accounts.Line) -> None:
    if line.number == len(state.names):
        if state.journal is not None:
            for column in (state.names, state.used, state.limit):
                state.journal.append((column, line.number, NOT_THERE))
        state.names.append((account, line.key))
        state.used.append(0)
        state.limit.append(line.limit)
        return
    if line.number > len(state.names) or state.names[line.number] != (account, line.key):
        raise InvariantError(f"line {line.number} is not {line.key} of {account}")
    _put_line(state, state.limit, line.number, line.limit)


def _cover(state: State, account: str, namespaces: set[str]) -> None:
    """Work out again which lines charge in these namespaces, after this account changed."""
    changed = state.accounts.get(account)
    for name in sorted(namespaces):
        space = state.namespaces.get(name)
        if space is None:
            space = _open_namespace(state, name)
        covering = {one for one in space.accounts if one != account}
        if changed is not None and name in changed.covers:
            covering.add(account)
        plan = sorted(
            (number, accounts.resource_of(key))
            for one in covering
            for key, number in state.accounts[one].lines.items()
        )
        plan_by_line = tuple((resource, number) for number, resource in plan)
        covered = space.covered_by(tuple(sorted(covering)), plan_by_line)
        _put(state, state.namespaces, name, covered)


def _recount(state: State, covers: tuple[str, ...], lines: list[int], closed: set[int]) -> Postings:
    """Set the used amount of lines from the charges that name them (0 where closed)."""
    postings: Postings = []
    for line in lines:
        total = 0
        if line in closed:
            _put_line(state, state.limit, line, 0)
        else:
            resource = accounts.resource_of(state.names[line][1])
            total = sum(
                entry.charge.get(resource, 0)
                for name in covers
                for entry in state.namespaces[name].entries.values()
            )
        old = state.used[line]
        if total != old:
            _put_line(state, state.used, line, total)
            postings += (line, total - old, total)
    return postings


def _open_namespace(state: State, name: str) -> Namespace:
    space = Namespace()
    _put(state, state.namespaces, name, space)
    return space


def _put(state: State, container: dict[Any, Any], key: Any, value: Any) -> None:
    if state.journal is not None:
        state.journal.append((container, key, container.get(key, NOT_THERE)))
    container[key] = value


def _put_line(state: State, column: list[int], line: int, value: int) -> None:
    if state.journal is not None:
        state.journal.append((column, line, column[line]))
    column[line] = value


def _drop(state: State, container: dict[Any, Any], key: Any) -> None:
    old = container.pop(key, NOT_THERE)
    if state.journal is not None and old is not NOT_THERE:
        state.journal.append((container, key, old))
