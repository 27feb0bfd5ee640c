"""`decide`: what a command leads to on a state: events, none when nothing is left to do, or a
denial. It changes nothing.

The charging rules are those of docs/concepts.md. In short: a key is charged the largest of what is
committed and what its open attempts ask for; an attempt ends by commit, by a newer version, by a
later try of the same request, or by proof that it was never written; truth is always charged.
"""

import heapq
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from ledger.core import accounts, amounts, commands, denials, events
from ledger.core.accounts import Kind
from ledger.core.amounts import Amounts
from ledger.core.denials import Denial, Holder, Reason, Shortage
from ledger.core.state import Ended, Entry, Hold, Namespace, State

HOLDERS_SHOWN: Final = 3
HOLDERS_SCANNED_MAX: Final = 4_096
"""A denial names the largest holders among this many keys, to stay cheap in a denial storm."""

Decision = list[events.AnyEvent] | Denial

_NOTHING: Final[Amounts] = {}
_GONE: Final = (events.Cause.DELETED, events.Cause.FINISHED)


def decide(state: State, command: commands.AnyCommand) -> Decision:
    """Decide a command on a state."""
    return _DECIDE[type(command)](state, command)


def _reserve(state: State, command: commands.Reserve) -> Decision:
    space = state.namespaces.get(command.namespace)
    if space is None:
        return [_reserved(command)] if command.demand else []
    entry = space.entries.get(command.key)
    if entry is not None:
        settled = _already_settled(entry, command)
        if settled is not None:
            return settled
        for hold in entry.holds:
            if hold.uid == command.uid and hold.base == command.base:
                return _again(state, space, entry, hold, command)
    if not command.demand or (command.base == commands.CREATE and _is_gone(state, command.uid)):
        return []
    superseded = _superseded(space, command)
    crowd = _too_many_unsettled(space, command, superseded)
    if crowd is not None:
        return crowd
    before, credit = _NOTHING if entry is None else entry.charge, _NOTHING
    if superseded is not None:
        same_key, credit = superseded[0] == command.key, _credit(space, superseded)
        if same_key:
            before, credit = amounts.minus(before, credit), _NOTHING
    denial = _check(state, space, command, before, amounts.largest(before, command.demand), credit)
    if denial is not None:
        return denial
    if superseded is None:
        return [_reserved(command)]
    key, uid = superseded
    release = events.Released(
        command.namespace, key, uid, commands.CREATE, events.Cause.SUPERSEDED, 0, command.actor
    )
    return [release, _reserved(command)]


def _already_settled(entry: Entry, command: commands.Reserve) -> Decision | None:
    """Return "nothing to do" when the stored object already answers the attempt."""
    stored = entry.committed
    if stored is None or stored.uid != command.uid:
        return None
    if command.base == commands.CREATE or command.base < stored.version:
        return []
    if amounts.covers(stored.demand, command.demand):
        return []
    return None


def _again(
    state: State, space: Namespace, entry: Entry, hold: Hold, command: commands.Reserve
) -> Decision:
    """Decide an attempt that already has a hold: the same body, or another at the same base."""
    if hold.demand == command.demand:
        return []
    if command.base == commands.CREATE:
        return _attempt_differs(hold, command)
    raised = amounts.largest(hold.demand, command.demand)
    if raised == hold.demand:
        return []
    after = amounts.largest(entry.charge, raised)
    denial = _check(state, space, command, entry.charge, after, _NOTHING)
    if denial is not None:
        return denial
    return [
        events.Raised(
            command.namespace, command.key, command.uid, command.base, raised, command.actor
        )
    ]


def _observe(state: State, command: commands.Observe) -> Decision:
    ended = state.ended.get(command.uid)
    if ended is not None and ended.cause in _GONE:
        return []
    space = state.namespaces.get(command.namespace)
    entry = space.entries.get(command.key) if space is not None else None
    if entry is None:
        return [_observed(command, ended, events.NO_HOLD)] if command.demand else []
    stored = entry.committed
    if stored is not None and _is_stale(stored.version, stored.uid, stored.demand, command):
        return []
    found: list[events.AnyEvent] = []
    if stored is not None and stored.uid != command.uid:
        found += _replaced(entry, stored.uid, command)
    ending = [
        hold for hold in entry.holds if hold.uid == command.uid and hold.base < command.version
    ]
    same = stored is not None and stored.uid == command.uid and stored.demand == command.demand
    if same and not ending:
        return found
    remaining = _charge_without(entry, found)
    if amounts.covers(remaining, command.demand):
        found += _committed(command, ending)
    elif ending:
        found.append(_observed(command, ended, _ending_first(ending).base))
        found += _fenced(command, ending)
    else:
        found.append(_observed(command, ended, events.NO_HOLD))
    return found


def _end(state: State, command: commands.End) -> Decision:
    space = state.namespaces.get(command.namespace)
    entry = space.entries.get(command.key) if space is not None else None
    if entry is None:
        return []
    found: list[events.AnyEvent] = []
    where = (command.namespace, command.key, command.uid)
    if entry.committed is not None and entry.committed.uid == command.uid:
        found.append(
            events.Released(*where, events.OBJECT, command.cause, command.version, command.actor)
        )
    for hold in entry.holds:
        if hold.uid != command.uid:
            continue
        cause = command.cause if hold.base == commands.CREATE else events.Cause.FENCED
        found.append(
            events.Released(*where, hold.base, cause, command.version, command.actor)
        )
    return found


def _refute(state: State, command: commands.Refute) -> Decision:
    space = state.namespaces.get(command.namespace)
    entry = space.entries.get(command.key) if space is not None else None
    if entry is None or not any(
        hold.uid == command.uid and hold.base == command.base for hold in entry.holds
    ):
        return []
    return [
        events.Released(
            command.namespace,
            command.key,
            command.uid,
            command.base,
            command.cause,
            0,
            command.actor,
        )
    ]


def _set_limits(state: State, command: commands.SetLimits) -> Decision:
    account = state.accounts.get(command.account)
    covers = tuple(sorted(set(command.covers)))
    known = account.lines if account is not None else {}
    if account is not None and account.covers == covers:
        limits = {key: state.limit[number] for key, number in known.items()}
        if limits == command.limits:
            return []
    opened, lines = len(state.names), []
    for key in sorted(command.limits):
        number = known.get(key, -1)
        if number < 0:
            number, opened = opened, opened + 1
        lines.append(accounts.Line(number, key, command.limits[key]))
    return [events.LimitSet(command.account, covers, tuple(lines), command.actor)]


def _close_account(state: State, command: commands.CloseAccount) -> Decision:
    if command.account not in state.accounts:
        return []
    return [events.AccountClosed(command.account, command.actor)]


def _register_cluster(state: State, command: commands.RegisterCluster) -> Decision:
    known = state.clusters.get(command.cluster)
    if known == command.uid:
        return []
    if known is None:
        return [events.ClusterRegistered(command.cluster, command.uid, command.actor)]
    return Denial(
        Reason.CLUSTER_NAME_TAKEN,
        f"cluster name {command.cluster} is bound to {known}, not to {command.uid}",
        transient=False,
        remedy="Give this cluster another name with --cluster",
        field="cluster",
        value=command.cluster,
    )


_DECIDE: Final[dict[type, Callable[[State, Any], Decision]]] = {
    commands.Reserve: _reserve,
    commands.Observe: _observe,
    commands.End: _end,
    commands.Refute: _refute,
    commands.SetLimits: _set_limits,
    commands.CloseAccount: _close_account,
    commands.RegisterCluster: _register_cluster,
}


def _reserved(command: commands.Reserve) -> events.Reserved:
    return events.Reserved(
        command.namespace,
        command.key,
        command.uid,
        command.base,
        command.demand,
        command.stamp,
        command.owner,
        command.actor,
    )


def _is_gone(state: State, uid: str) -> bool:
    ended = state.ended.get(uid)
    return ended is not None and ended.cause in _GONE


def _is_stale(version: int, uid: str, demand: Amounts, command: commands.Observe) -> bool:
    """Return whether the news is older than what is committed, or the very same."""
    if command.version != version:
        return command.version < version
    return uid == command.uid and demand == command.demand


def _superseded(space: Namespace, command: commands.Reserve) -> tuple[str, str] | None:
    """Return the `(key, uid)` of the earlier attempt of the same API request."""
    if not command.stamp or command.base != commands.CREATE:
        return None
    earlier = space.stamps.get(command.stamp)
    return earlier if earlier is not None and earlier[1] != command.uid else None


def _credit(space: Namespace, superseded: tuple[str, str]) -> Amounts:
    """Return what releasing the superseded CREATE hold frees."""
    key, uid = superseded
    entry = space.entries[key]
    rest = entry.committed.demand if entry.committed is not None else _NOTHING
    for hold in entry.holds:
        if hold.uid != uid or hold.base != commands.CREATE:
            rest = amounts.largest(rest, hold.demand)
    return amounts.minus(entry.charge, rest)


def _too_many_unsettled(
    space: Namespace, command: commands.Reserve, superseded: tuple[str, str] | None
) -> Denial | None:
    bound = command.owner_holds_max
    if not bound or not command.owner or command.base != commands.CREATE:
        return None
    unsettled = space.owners.get(command.owner, 0) - (superseded is not None)
    if unsettled < bound:
        return None
    return Denial(
        Reason.TOO_MANY_UNSETTLED,
        f"{command.owner} has {unsettled} creations in {command.namespace} whose outcome is not"
        f" known yet, and at most {bound} are allowed",
        transient=True,
        remedy="They settle within about a minute; look for what else refuses them,"
        " another webhook or a ResourceQuota",
        field="owner",
        value=command.owner,
    )


def _attempt_differs(hold: Hold, command: commands.Reserve) -> Denial:
    resource = min(
        name
        for name in {*hold.demand, *command.demand}
        if hold.demand.get(name, 0) != command.demand.get(name, 0)
    )
    return Denial(
        Reason.ATTEMPT_DIFFERS,
        f"attempt {command.uid} at {command.key} holds {resource}={hold.demand.get(resource, 0)}"
        f" and now asks for {resource}={command.demand.get(resource, 0)}",
        transient=False,
        remedy="An attempt to create has one body; this review does not come from an API server",
        field=resource,
        value=str(command.demand.get(resource, 0)),
    )


def _check(
    state: State,
    space: Namespace,
    command: commands.Reserve,
    before: Amounts,
    after: Amounts,
    credit: Amounts,
) -> Denial | None:
    """Return a denial when any line of any account has no room for the increase."""
    used, limit = state.used, state.limit
    short = None
    for resource, line in space.plan:
        need = after.get(resource, 0)
        if before:
            need -= before.get(resource, 0)
        if credit:
            need -= credit.get(resource, 0)
        if need > 0 and used[line] + need > limit[line]:
            short = short or []
            short.append((line, need, after.get(resource, 0)))
    return _no_room(state, space, short) if short else None


def _no_room(state: State, space: Namespace, short: list[tuple[int, int, int]]) -> Denial:
    """Build the denial: never before later, universe before quota, then by line number."""
    ranked = sorted(short, key=lambda one: (_reason(state, one[0], one[2]), one[0]))
    ranked.sort(key=lambda one: list(Reason).index(_reason(state, one[0], one[2])))
    shortages = tuple(_shortage(state, line, need) for line, need, _ in ranked)
    line, _, total = ranked[0]
    reason = _reason(state, line, total)
    holders, more = _holders(space, accounts.resource_of(state.names[line][1]))
    head = shortages[0]
    if reason is Reason.EXCEEDS_LIMIT:
        remedy = f"Ask for at most {head.limit}, or have the limit raised"
    elif head.free > 0:
        remedy = f"Fits now: up to {head.free}"
    else:
        remedy = "Nothing fits until something is released or the limit is raised"
    return Denial(
        reason,
        denials.describe(head),
        transient=reason is not Reason.EXCEEDS_LIMIT,
        remedy=remedy,
        shortages=shortages,
        holders=holders,
        holders_more=more,
    )


def _reason(state: State, line: int, total: int) -> Reason:
    if total > state.limit[line]:
        return Reason.EXCEEDS_LIMIT
    return {
        Kind.UNIVERSE: Reason.UNIVERSE_EXCEEDED,
        Kind.QUOTA: Reason.QUOTA_EXCEEDED,
        Kind.CARD: Reason.CARD_EXCEEDED,
    }[accounts.kind(state.names[line][0])]


def _shortage(state: State, line: int, need: int) -> Shortage:
    account, key = state.names[line]
    used, limit = state.used[line], state.limit[line]
    free = max(0, limit - used)
    return Shortage(account, key, need, used, limit, free, used + need - limit)


def _holders(space: Namespace, resource: str) -> tuple[tuple[Holder, ...], int]:
    holding = [
        (entry.charge[resource], key, entry)
        for key, entry in islice(space.entries.items(), HOLDERS_SCANNED_MAX)
        if resource in entry.charge
    ]
    top = heapq.nlargest(HOLDERS_SHOWN, holding, key=lambda one: one[0])
    holders = tuple(Holder(key, amount, _since(entry)) for amount, key, entry in top)
    return holders, len(holding) - len(holders)


def _since(entry: Entry) -> int:
    if entry.committed is not None:
        return entry.committed.time
    return min(hold.time for hold in entry.holds)


def _replaced(entry: Entry, gone: str, command: commands.Observe) -> list[events.AnyEvent]:
    """Another object has taken the key: the old one and attempts to update it are over."""
    where = (command.namespace, command.key, gone)
    tail = (command.version, command.actor)
    found: list[events.AnyEvent] = [
        events.Released(*where, events.OBJECT, events.Cause.DELETED, *tail)
    ]
    found += [
        events.Released(*where, hold.base, events.Cause.FENCED, *tail)
        for hold in entry.holds
        if hold.uid == gone and hold.base != commands.CREATE
    ]
    return found


def _charge_without(entry: Entry, released: list[events.AnyEvent]) -> Amounts:
    """Return the entry's charge after those releases."""
    if not released:
        return entry.charge
    gone = {(one.uid, one.base) for one in released if isinstance(one, events.Released)}
    charge = _NOTHING
    for hold in entry.holds:
        if (hold.uid, hold.base) not in gone:
            charge = amounts.largest(charge, hold.demand)
    return charge


def _ending_first(ending: list[Hold]) -> Hold:
    """Return the hold that ends in the commit: the CREATE, else the newest base."""
    return min(ending, key=lambda hold: (hold.base != commands.CREATE, -hold.base))


def _committed(command: commands.Observe, ending: list[Hold]) -> list[events.AnyEvent]:
    where = (command.namespace, command.key, command.uid, command.version)
    if not ending:
        return [events.Committed(*where, events.NO_HOLD, command.demand, command.actor)]
    first = _ending_first(ending)
    demand = None if first.demand == command.demand else command.demand
    return [
        events.Committed(*where, first.base, demand, command.actor),
        *_fenced(command, ending),
    ]


def _fenced(command: commands.Observe, ending: list[Hold]) -> list[events.AnyEvent]:
    first = _ending_first(ending)
    return [
        events.Released(
            command.namespace,
            command.key,
            command.uid,
            hold.base,
            events.Cause.FENCED,
            command.version,
            command.actor,
        )
        for hold in ending
        if hold is not first
    ]


def _observed(command: commands.Observe, ended: Ended | None, base: int) -> events.Observed:
    late = ended is not None and base == events.NO_HOLD
    return events.Observed(
        command.namespace,
        command.key,
        command.uid,
        command.version,
        command.demand,
        events.Cause.LATE if late else events.Cause.UNRESERVED,
        base,
        command.actor,
    )
