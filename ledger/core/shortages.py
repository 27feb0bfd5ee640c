"""Shortages: whether every line of every covering account has room, and the denial if not."""

import heapq
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from ledger.core import accounts, charging, commands, denials, events
from ledger.core.accounts import Kind
from ledger.core.amounts import Amounts
from ledger.core.denials import Denial, Holder, Reason, Shortage
from ledger.core.evolution import evolve
from ledger.core.state import Account, Entry, Namespace, State
from ledger.core.traits import matches, numbered

HOLDERS_SHOWN: Final = 3
HOLDERS_SCANNED_MAX: Final = 1_024
"""A denial names the largest holders among this many keys, to stay cheap in a denial storm.

Pods that draw from a root are among the keys, although only their root is a holder."""

_PRECEDENCE: Final = {reason: rank for rank, reason in enumerate(Reason)}
_EXCEEDED: Final = {
    Kind.UNIVERSE: Reason.UNIVERSE_EXCEEDED,
    Kind.QUOTA: Reason.QUOTA_EXCEEDED,
    Kind.CARD: Reason.CARD_EXCEEDED,
}


class Short(NamedTuple):
    """A line without room: the increase, what is used, and what the key would be charged."""

    line: int
    need: int
    used: int
    total: int


def check(
    state: State,
    space: Namespace,
    before: Amounts,
    after: Amounts,
    *,
    own_holders: bool,
) -> Denial | None:
    """Return a denial when any line has no room for the increase from `before` to `after`.

    With `own_holders` it names no other namespace.
    """
    limit = state.limit
    short = None
    for resource, line in space.plan:
        need = after.get(resource, 0)
        if before:
            need -= before.get(resource, 0)
        if need > 0:
            used = state.used[line]
            if used + need > limit[line]:
                short = short or []
                short.append(Short(line, need, used, after.get(resource, 0)))
    return no_room(state, space, short, own_holders=own_holders) if short else None


def attempt(
    state: State,
    space: Namespace,
    event: events.Reserved | events.Raised,
    command: commands.Reserve,
) -> Denial | None:
    """Return a denial when applying an event would bring a line over its limit.

    Also when a pod would draw on what it has no right to. It is applied and taken back, so what is
    checked is exactly what will be charged. It is forced, or applying it would fail instead of
    telling by how much.
    """
    with state.trying():
        postings = evolve(state, msgspec.structs.replace(event, forced=True), state.time)
        charge = space.entries[command.key].charge
        values = iter(postings)
        short = [
            of_line(state, line, more, after, charge)
            for line, more, after in zip(values, values, values, strict=True)
            if more > 0 and after > state.limit[line]
        ]
    short = short or _beyond(state, space, command)
    if not short:
        return None
    return no_room(state, space, short, _about(space, command), own_holders=command.own_holders)


def _beyond(state: State, space: Namespace, command: commands.Reserve) -> list[Short]:
    """Return the lines over their limits on whose excess a pod of an envelope would draw.

    A part of an envelope that nobody asked for is charged, because it exists. Its pods may come as
    long as there is room for it.
    """
    root = space.entries.get(command.root)
    if root is None or root.committed is None or root.committed.admitted is None:
        return []
    counting = charging.by_line(space, [charging.Term(root.traits, command.demand)])
    return [
        Short(line, need, state.used[line], need)
        for line, need in counting.items()
        if state.used[line] > state.limit[line]
    ]


def of_line(state: State, line: int, more: int, after: int, charge: Amounts) -> Short:
    """Return a line without room for a posting, for a key that is charged this."""
    resource = accounts.resource_of(state.names[line][1])
    return Short(line, more, after - more, charge.get(resource, 0))


def _about(space: Namespace, command: commands.Reserve) -> str:
    """Say which envelope the object would draw from, if it would."""
    root = space.entries.get(command.root)
    if root is None:
        return ""
    draw = space.draws.get(command.root)
    taken = draw.charge if draw is not None else {}
    parts = ", ".join(
        f"{resource} {taken.get(resource, 0)} of {root.charge.get(resource, 0)}"
        for resource in sorted(command.demand)
        if resource in root.charge or resource in taken
    )
    return f" (beyond the envelope of {command.root}, of which its pods take {parts})"


def no_room(
    state: State, space: Namespace, short: list[Short], about: str = "", *, own_holders: bool
) -> Denial:
    """Return the denial: never before later, universe before quota, then by line number.

    With `own_holders` it names no other namespace.
    """
    ranked = sorted(short, key=lambda one: (_PRECEDENCE[_reason(state, one)], one.line))
    shortages = tuple(shortage_of(state, one) for one in ranked)
    reason = _reason(state, ranked[0])
    head = shortages[0]
    holders, more = _holders(state, space, head, own_only=own_holders)
    # Others may have less of the same resource: what is advised has to pass all of them.
    same = accounts.resource_of(head.resource)
    alike = [one for one in shortages if accounts.resource_of(one.resource) == same]
    limit, free = min(one.limit for one in alike), min(one.free for one in alike)
    if reason is Reason.EXCEEDS_LIMIT:
        remedy = f"Ask for at most {limit}, or have the limit raised"
    elif free > 0:
        remedy = f"Fits now: up to {free}"
    else:
        remedy = "Nothing fits until something is released or the limit is raised"
    return Denial(
        reason,
        denials.describe(head) + about,
        transient=reason is not Reason.EXCEEDS_LIMIT,
        remedy=remedy,
        shortages=shortages,
        holders=holders,
        holders_more=more,
    )


def _reason(state: State, short: Short) -> Reason:
    if short.total > state.limit[short.line]:
        return Reason.EXCEEDS_LIMIT
    return _EXCEEDED[accounts.kind(state.names[short.line][0])]


def shortage_of(state: State, short: Short) -> Shortage:
    """Return the numbers of a line without room."""
    account, key = state.names[short.line]
    used, limit = short.used, state.limit[short.line]
    free = max(0, limit - used)
    return Shortage(account, key, short.need, used, limit, free, used + short.need - limit)


def _holders(
    state: State, space: Namespace, head: Shortage, *, own_only: bool
) -> tuple[tuple[Holder, ...], int]:
    """Return the largest holders of a line, and how many more there are among the keys looked at.

    Objects of other namespaces are none of the asker's business: of these it learns the
    namespace's share at most, and with `own_only` nothing.
    """
    resource = accounts.resource_of(head.resource)
    own: list[Holder] = []
    shares: dict[str, int] = {}
    for namespace, key, charge in islice(_holding(state, head.account), HOLDERS_SCANNED_MAX):
        amount = charge.get(resource, 0)
        if not amount:
            continue
        if state.namespaces[namespace] is space:
            own.append(Holder(key, amount, _since(space.entries.get(key))))
        elif not own_only:
            shares[namespace] = shares.get(namespace, 0) + amount
    holding = [*own, *(Holder(name, amount, 0) for name, amount in shares.items())]
    holders = tuple(heapq.nlargest(HOLDERS_SHOWN, holding, key=attrgetter("amount")))
    return holders, len(holding) - len(holders)


def _holding(state: State, name: str) -> Iterator[tuple[str, str, Amounts]]:
    """Yield the units that an account counts: namespace, key, and what they are charged."""
    account = state.accounts[name]
    selects = numbered(account.selects, state.labels)
    for namespace, key in islice(_keys(state, account), HOLDERS_SCANNED_MAX):
        space = state.namespaces[namespace]
        entry = space.entries.get(key)
        if entry is not None and charging.drawn_from(entry):
            continue  # what it takes is its root's
        for term in charging.terms(space, key):
            if not selects or matches(selects, term.traits):
                yield namespace, key, term.on(asked_only=account.asked_only)


def _keys(state: State, account: Account) -> Iterator[tuple[str, str]]:
    """Yield every key that an account covers; before others the roots, for they hold the most."""
    for namespace in account.covers:
        space = state.namespaces[namespace]
        for root in space.draws:
            yield namespace, root
        for key in space.entries:
            if key not in space.draws:
                yield namespace, key


def _since(entry: Entry | None) -> int:
    """Return when something began to be held; 0 for pods whose root is not known any more."""
    if entry is None:
        return 0
    if entry.committed is not None:
        return entry.committed.time
    return min(hold.time for hold in entry.holds)
