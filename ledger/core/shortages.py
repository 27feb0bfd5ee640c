"""Shortages: whether every line of every covering account has room, and the denial if not."""

import heapq
from itertools import islice
from typing import Final

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


def check(
    state: State,
    space: Namespace,
    before: Amounts,
    after: Amounts,
    credit: Amounts,
) -> Denial | None:
    """Return a denial when any line has no room for the increase from `before` to `after`.

    `credit` is what the same decision frees elsewhere in the namespace.
    """
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
    ranked = sorted(short, key=lambda one: (_PRECEDENCE[_reason(state, one[0], one[2])], one[0]))
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
    return _EXCEEDED[accounts.kind(state.names[line][0])]


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
