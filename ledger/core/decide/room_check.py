"""Room check: whether every line of every account that counts an object has room for it."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from ledger.core.evolve import envelope_charges, placement_charges
from ledger.core.evolve.evolver import evolve
from ledger.core.model import commands, events
from ledger.core.model.amounts import Amounts
from ledger.core.model.state import Namespace, State


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
    used, limit = state.used, state.limit
    short: list[Short] = []
    for resource, line in zip(*space.plan, strict=False):
        total = after.get(resource)
        if total:
            need = total - before.get(resource, 0) if before else total
            if need > 0 and used[line] + need > limit[line]:
                short.append(Short(line, need, used[line], total, total - need))
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
    known = {shortfall.line for shortfall in short}
    beyond = _beyond(state, state.namespaces[command.namespace], command)
    return [*short, *(shortfall for shortfall in beyond if shortfall.line not in known)]


def over_limits(
    state: State, place: tuple[str, str], postings: list[int], kept: Mapping[int, int]
) -> list[Short]:
    """Return the lines that postings of a key, just applied, have brought over their limits.

    `kept` is the amount of a line that is kept for other pods.
    """
    values = iter(postings)
    over = [
        (line, more, after)
        for line, more, after in zip(values, values, values, strict=True)
        if more > 0 and after + kept.get(line, 0) > state.limit[line]
    ]
    if not over:
        return []
    totals = _totals(state, *place)
    return [
        Short(line, more, after - more, totals.get(line, more), totals.get(line, more) - more)
        for line, more, after in over
    ]


def _totals(state: State, namespace: str, key: str) -> dict[int, int]:
    """Return the charge of a key's unit on every line of quotas, and of a pod on its cards."""
    space = state.namespaces[namespace]
    unit = envelope_charges.unit_of(key, space.entries[key])
    totals = envelope_charges.by_line(space, envelope_charges.touched(space, unit, key))
    placed = space.placed.get(key)
    if placed is not None and placed.node:
        for uuid, booking in placement_charges.bookings_of(placed).items():
            totals.update(zip(state.card_lines[placed.node, uuid], booking, strict=True))
    return totals


def _beyond(state: State, space: Namespace, command: commands.Reserve) -> list[Short]:
    """Return the lines over their limits when a pod would draw from an unreviewed envelope.

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
