"""Room check: whether every line of every covering account has room, and the denial if not."""

import heapq
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from ledger.core.decide import advice_text
from ledger.core.decide.advice_search import Lacking, admissible
from ledger.core.decide.advice_text import DenialWording
from ledger.core.evolve import envelope_charges, placement_events
from ledger.core.evolve.evolver import evolve
from ledger.core.model import accounts, commands, display_names, events
from ledger.core.model.accounts import AccountKind
from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial, Holder, Reason, Shortage
from ledger.core.model.state import Account, Entry, Namespace, State
from ledger.core.model.traits import matches, numbered

HOLDERS_SHOWN: Final = 3
HOLDERS_SCANNED_MAX: Final = 1_024
"""A denial names the largest holders among this many keys, to stay cheap in a denial storm.

Pods that draw from a root are among the keys, although only their root is a holder."""

SENTENCES_MAX: Final = 16
"""Most short lines that have a sentence in a denial."""

_PRECEDENCE: Final = {reason: rank for rank, reason in enumerate(Reason)}
_EXCEEDED: Final = {
    AccountKind.UNIVERSE: Reason.UNIVERSE_EXCEEDED,
    AccountKind.QUOTA: Reason.QUOTA_EXCEEDED,
    AccountKind.CARD: Reason.CARD_EXCEEDED,
}


class Short(NamedTuple):
    """A line without room: the increase, the used amount, and the total need of the object.

    `own` is the object's present part of `used`.
    """

    line: int
    need: int
    used: int
    total: int
    own: int


def beyond_limits(state: State, space: Namespace, before: Amounts, after: Amounts) -> list[Short]:
    """Return the lines that have no room for the increase from `before` to `after`."""
    limit = state.limit
    short: list[Short] = []
    for resource, line in space.plan:
        need = after.get(resource, 0)
        if before:
            need -= before.get(resource, 0)
        if need > 0:
            used = state.used[line]
            if used + need > limit[line]:
                total = after.get(resource, 0)
                short.append(Short(line, need, used, total, total - need))
    return short


def over_by(state: State, short: Short) -> int:
    """Return how much has to be released on a line before there is room."""
    return short.used + short.need - state.limit[short.line]


def attempted(
    state: State, event: events.Reserved | events.Raised, command: commands.Reserve
) -> list[Short]:
    """Return the lines that an event would bring over their limits.

    Lines on which a pod would draw from an unreviewed part of its envelope are among them. The
    event is applied and taken back, so the check and the later charge are the same. It is applied
    as forced, because otherwise it would fail without the amounts.
    """
    with state.trying():
        postings = evolve(state, msgspec.structs.replace(event, forced=True), state.time)
        short = over_limits(state, (command.namespace, command.key), postings, {})
    known = {one.line for one in short}
    beyond = _beyond(state, state.namespaces[command.namespace], command)
    return [*short, *(one for one in beyond if one.line not in known)]


def over_limits(
    state: State, place: tuple[str, str], postings: list[int], kept: Mapping[int, int]
) -> list[Short]:
    """Return the lines that postings of a key, just applied, have brought over their limits.

    `kept` is the amount of a line that is kept for other pods.
    """
    values = iter(postings)
    found = [
        (line, more, after)
        for line, more, after in zip(values, values, values, strict=True)
        if more > 0 and after + kept.get(line, 0) > state.limit[line]
    ]
    if not found:
        return []
    totals = _totals(state, *place)
    return [
        Short(line, more, after - more, totals.get(line, more), totals.get(line, more) - more)
        for line, more, after in found
    ]


def _totals(state: State, namespace: str, key: str) -> dict[int, int]:
    """Return the charge of a key's unit on every line of quotas, and of a pod on its cards."""
    space = state.namespaces[namespace]
    unit = envelope_charges.unit_of(key, space.entries[key])
    totals = envelope_charges.by_line(space, envelope_charges.touched(space, unit, key))
    placed = space.placed.get(key)
    if placed is not None and placed.node:
        for uuid, booking in placement_events.bookings_of(placed).items():
            totals.update(zip(state.card_lines[placed.node, uuid], booking, strict=True))
    return totals


def _beyond(state: State, space: Namespace, command: commands.Reserve) -> list[Short]:
    """Return the lines over their limits on whose excess a pod of an envelope would draw.

    An unreviewed part of an envelope is charged, because it exists. Its pods are admitted as long
    as there is room for that part.
    """
    root = space.entries.get(command.root)
    if root is None or root.committed is None or root.committed.admitted is None:
        return []
    counting = envelope_charges.by_line(
        space, [envelope_charges.ChargeTerm(root.traits, command.demand)]
    )
    return [
        Short(line, 0, state.used[line], need, 0)
        for line, need in counting.items()
        if state.used[line] > state.limit[line]
    ]


def no_room(
    state: State,
    space: Namespace,
    short: list[Short],
    command: commands.Reserve,
    lacking: Lacking,
) -> Denial:
    """Return the denial: never before later, universe before quota, then by line number.

    `lacking` is the function with which `admissible` tries demands.
    """
    over = {one.line: over_by(state, one) for one in short}
    found = admissible(state, space, command, lacking, over)
    found = found._replace(never=found.never - _within(state, short, command.demand))
    asking = DenialWording.of(command, space)
    if found.never and not found.now.pods and not found.ever.pods:
        asking = asking._replace(never=found.never)
    lines = ranked_shortages(state, short, asking, found.never)
    head = lines[0]
    return msgspec.structs.replace(
        denial_of(state, space, lines, own_holders=command.own_holders),
        message=message_of(lines) + _envelope(space, command),
        transient=not found.never,
        remedy=advice_text.remedy(command, lines, found, asking),
        reason=Reason.EXCEEDS_LIMIT if found.never else Reason(head.reason),
    )


def _within(state: State, short: list[Short], demand: Amounts) -> set[int]:
    """Return the lines whose limits are enough for the demand itself.

    Until a change is stored, the object is charged its old demand as well, also on a line that did
    not count the object before. When the object is reduced first, the change fits.
    """
    return {
        line
        for line, _, _, total, _ in short
        if min(total, demand.get(accounts.resource_of(state.names[line][1]), 0))
        <= state.limit[line]
    }


def denial_of(
    state: State, space: Namespace, lines: tuple[Shortage, ...], *, own_holders: bool
) -> Denial:
    """Return a denial with its numbers and the holders of its first line.

    With `own_holders` it names no other namespace.
    """
    holders, more = _holders(state, space, lines[0], own_only=own_holders)
    return Denial(
        Reason(lines[0].reason),
        message_of(lines),
        transient=True,
        shortages=lines,
        holders=holders,
        holders_more=more,
    )


def ranked_shortages(
    state: State, short: list[Short], asking: DenialWording, never: Collection[int]
) -> tuple[Shortage, ...]:
    """Return the lines without room in the order of the denial, each with its sentence.

    Only the first `SENTENCES_MAX` have a sentence, and of several equal sentences only the first
    line: `limits` and `requests` of a resource limit the same.
    """
    reasons = {one.line: _reason(state, one, never) for one in short}
    ranked = sorted(short, key=lambda one: (_PRECEDENCE[reasons[one.line]], one.line))
    found: list[Shortage] = []
    seen: set[str] = set()
    for one in ranked:
        numbers = shortage_of(state, one)
        message = asking.message(numbers, one.line) if len(seen) < SENTENCES_MAX else ""
        is_repeated = message in seen
        seen.add(message)
        reason, message = reasons[one.line], "" if is_repeated else message
        found.append(msgspec.structs.replace(numbers, reason=reason, message=message))
    return tuple(found)


def message_of(lines: tuple[Shortage, ...]) -> str:
    """Return the sentences of all lines, without the last full stop."""
    first, *others = [one.message for one in lines if one.message]
    pieces = [first, *(display_names.also(one, first) for one in others)]
    if len(pieces) == SENTENCES_MAX and len(lines) > SENTENCES_MAX:
        pieces.append("Other limits have no room either")
    return ". ".join(pieces)


def _envelope(space: Namespace, command: commands.Reserve) -> str:
    """Return the sentence about the envelope that the object would draw from, empty without one."""
    root = space.entries.get(command.root)
    if root is None:
        return ""
    draw = space.draws.get(command.root)
    taken = draw.charge if draw is not None else {}
    parts = [
        f"{taken.get(resource, 0)} of"
        f" {display_names.measure(resource).amount(root.charge.get(resource, 0))}"
        for resource in sorted(command.demand)
        if resource in root.charge or resource in taken
    ]
    rest = (
        f"of which its pods take {display_names.listed(parts)}"
        if parts
        else "which has none of that"
    )
    return f". It is beyond the envelope of {command.root}, {rest}"


def _reason(state: State, short: Short, never: Collection[int]) -> Reason:
    if short.line in never:
        return Reason.EXCEEDS_LIMIT
    return _EXCEEDED[accounts.kind(state.names[short.line][0])]


def shortage_of(state: State, short: Short) -> Shortage:
    """Return the numbers of a line without room."""
    account, key = state.names[short.line]
    used, limit = short.used, state.limit[short.line]
    return Shortage(
        account,
        key,
        short.need,
        used,
        limit,
        max(0, limit - used),
        over_by(state, short),
        short.total,
        short.own,
    )


def _holders(
    state: State, space: Namespace, head: Shortage, *, own_only: bool
) -> tuple[tuple[Holder, ...], int]:
    """Return the largest holders of a line, and how many more there are among the scanned keys.

    A denial does not name objects of other namespaces: it shows the namespace's share at most, and
    with `own_only` nothing.
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
    """Yield the units that an account counts: namespace, key and charge."""
    account = state.accounts[name]
    selects = numbered(account.selects, state.labels)
    for namespace, key in islice(_keys(state, account), HOLDERS_SCANNED_MAX):
        space = state.namespaces[namespace]
        entry = space.entries.get(key)
        if entry is not None and envelope_charges.drawn_from(entry):
            continue  # its demand is part of its root's charge
        for term in envelope_charges.terms(space, key):
            if not selects or matches(selects, term.traits):
                yield namespace, key, term.on(asked_only=account.asked_only)


def _keys(state: State, account: Account) -> Iterator[tuple[str, str]]:
    """Yield every key that an account covers; roots first, because they hold the most."""
    for namespace in account.covers:
        space = state.namespaces[namespace]
        for root in space.draws:
            yield namespace, root
        for key in space.entries:
            if key not in space.draws:
                yield namespace, key


def _since(entry: Entry | None) -> int:
    """Return when the entry's charge began; 0 for pods whose root is not known any more."""
    if entry is None:
        return 0
    if entry.committed is not None:
        return entry.committed.time
    return min(hold.time for hold in entry.holds)
