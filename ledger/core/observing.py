"""Observing: what the sight of a persisted object leads to. Truth is always charged.

An observation that the charge already covers is a commit. One that raises the charge is recorded
as `Observed`, so that every step over a limit has its cause in the log.
"""

from typing import Final

from ledger.core import amounts, commands, events
from ledger.core.amounts import Amounts
from ledger.core.state import Ended, Entry, Hold, Object, State

_NOTHING: Final[Amounts] = {}


def observe(state: State, command: commands.Observe) -> list[events.AnyEvent]:
    """Decide an observation."""
    ended = state.ended.get(command.uid)
    if ended is not None and ended.cause in events.GONE:
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
    if not ending and _adds_nothing(stored, command):
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


def _adds_nothing(stored: Object | None, command: commands.Observe) -> bool:
    """Return whether the object is committed as it is, or is new and demands nothing."""
    if stored is None or stored.uid != command.uid:
        return not command.demand
    return stored.demand == command.demand


def _is_stale(version: int, uid: str, demand: Amounts, command: commands.Observe) -> bool:
    """Return whether the news is older than what is committed, or the very same."""
    if command.version != version:
        return command.version < version
    return uid == command.uid and demand == command.demand


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
