"""Shortages: whether every line of every covering account has room, and the denial if not."""

import heapq
from itertools import islice
from typing import Final, NamedTuple

from ledger.core import accounts, denials
from ledger.core.accounts import Kind
from ledger.core.amounts import Amounts
from ledger.core.denials import Denial, Holder, Reason, Shortage
from ledger.core.state import Entry, Namespace, State

HOLDERS_SHOWN: Final = 3
HOLDERS_SCANNED_MAX: Final = 4_096
"""A denial names the largest holders among this many keys, to stay cheap in a denial storm."""

_PRECEDENCE: Final = {reason: rank for rank, reason in enumerate(Reason)}
_EXCEEDED: Final = {
    Kind.UNIVERSE: Reason.UNIVERSE_EXCEEDED,
    Kind.QUOTA: Reason.QUOTA_EXCEEDED,
    Kind.CARD: Reason.CARD_EXCEEDED,
}


class _Short(NamedTuple):
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
    freed: Amounts,
) -> Denial | None:
    """Return a denial when any line has no room for the increase from `before` to `after`.

    `freed` is what the same decision releases in this namespace before it charges.
    """
    limit = state.limit
    short = None
    for resource, line in space.plan:
        need = after.get(resource, 0)
        if before:
            need -= before.get(resource, 0)
        if need > 0:
            used = state.used[line]
            if freed:
                used -= freed.get(resource, 0)
            if used + need > limit[line]:
                short = short or []
                short.append(_Short(line, need, used, after.get(resource, 0)))
    return _no_room(state, space, short) if short else None


def _no_room(state: State, space: Namespace, short: list[_Short]) -> Denial:
    """Build the denial: never before later, universe before quota, then by line number."""
    ranked = sorted(short, key=lambda one: (_PRECEDENCE[_reason(state, one)], one.line))
    shortages = tuple(_shortage(state, one) for one in ranked)
    reason = _reason(state, ranked[0])
    holders, more = _holders(space, accounts.resource_of(shortages[0].resource))
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


def _reason(state: State, short: _Short) -> Reason:
    if short.total > state.limit[short.line]:
        return Reason.EXCEEDS_LIMIT
    return _EXCEEDED[accounts.kind(state.names[short.line][0])]


def _shortage(state: State, short: _Short) -> Shortage:
    account, key = state.names[short.line]
    used, limit = short.used, state.limit[short.line]
    free = max(0, limit - used)
    return Shortage(account, key, short.need, used, limit, free, used + short.need - limit)


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
