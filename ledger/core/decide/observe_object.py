"""Observe an object: the events of a persisted object that was seen. It is always charged.

An observation within the present charge is a commit. One that raises the charge, or changes the
accounts that count the object, is recorded as `Observed`, so that every step over a limit has its
cause in the log. While the spec stays the same, a changed status may lower the charge and never
raise it. A stale observation is ignored, and so is one of an object that has ended.

The devices that resource claims gave to an object lower its charge to what they take. Their end
raises it again.
"""

from typing import Final

import msgspec

from ledger.core.decide import observed_devices
from ledger.core.evolve import device_bounds, envelope_charges, placement_charges
from ledger.core.model import amounts, commands, events, traits
from ledger.core.model.amounts import Amounts
from ledger.core.model.state import Entry, Hold, Object, State

_NOTHING: Final[Amounts] = {}


def observe(state: State, command: commands.Observe) -> list[events.AnyEvent]:
    """Decide an observation."""
    ended = state.ended.get(command.uid)
    if ended is not None and ended.cause in events.GONE:
        return []
    entry = state.entry(command.namespace, command.key) or envelope_charges.EMPTY
    command = _as_charged(state, entry, command)
    stored = entry.committed
    if stored is not None:
        command = _lowered(stored, command)
        if _is_stale(stored, command):
            return []
    decided: list[events.AnyEvent] = []
    if stored is not None and stored.uid != command.uid:
        decided += _replaced(entry, stored.uid, command)
    ending = [
        hold for hold in entry.holds if hold.uid == command.uid and hold.base < command.version
    ]
    if not ending and _adds_nothing(stored, command):
        return decided
    charge = device_bounds.with_earlier_savings(stored, command.uid, command.demand)
    covered = amounts.covers(_charge_without(entry, decided), charge)
    known = _ending_first(ending) if ending else stored
    expected = covered and known is not None and known.uid == command.uid
    if expected and known is not None and _is_counted(known, command):
        return decided + _committed(command, ending)
    base = _ending_first(ending).base if ending else events.NO_HOLD
    cause = events.Cause.MOVED
    if not expected:
        is_late = ended is not None and base == events.NO_HOLD and bool(command.demand)
        rise = observed_devices.cause_of_rise(stored, command, held=bool(ending))
        cause = events.Cause.LATE if is_late else rise
    decided.append(_observed(command, cause, base))
    return decided + _fenced(command, ending)


def _as_charged(state: State, entry: Entry, command: commands.Observe) -> commands.Observe:
    """Return the observation with the root, demand and devices that are recorded for its object."""
    if entry is not envelope_charges.EMPTY:
        if envelope_charges.is_barred(entry, command.uid):
            command = msgspec.structs.replace(command, root=commands.BARRED)
        space = state.namespaces[command.namespace]
        if command.key in space.placed:
            demand = placement_charges.standing(space, command.key, command.uid, command.demand)
            command = msgspec.structs.replace(command, demand=demand)
    return observed_devices.with_recorded_devices(state, entry, command)


def _lowered(stored: Object, command: commands.Observe) -> commands.Observe:
    """Return the observation without a rise that only the status of the same spec causes."""
    if not command.generation or stored.generation != command.generation:
        return command
    if stored.devices != (command.devices or ()):
        return command
    known = device_bounds.spec_envelope(stored)
    if stored.uid != command.uid or amounts.covers(known, command.demand):
        return command
    demand = amounts.smallest(command.demand, known)
    return msgspec.structs.replace(command, demand=demand)


def _is_counted(known: Hold | Object, command: commands.Observe) -> bool:
    """Return whether the accounts that count an object are still the same."""
    return known.root == command.root and known.traits == command.traits


def _adds_nothing(stored: Object | None, command: commands.Observe) -> bool:
    """Return whether the object is committed unchanged, or is new and demands nothing."""
    if stored is None or stored.uid != command.uid:
        return not command.demand and not command.devices
    is_known = device_bounds.spec_envelope(stored) == command.demand
    same = is_known and stored.devices == (command.devices or ())
    return same and _is_counted(stored, command)


def _is_stale(stored: Object, command: commands.Observe) -> bool:
    """Return whether the observation is older than the committed object, or the same."""
    if command.version != stored.version:
        return command.version < stored.version
    if stored.uid != command.uid:
        return False
    # A client that reads the same version may not have the newest label keys yet.
    is_older = traits.read_up_to(command.traits) < traits.read_up_to(stored.traits)
    return is_older or _adds_nothing(stored, command)


def _replaced(entry: Entry, gone: str, command: commands.Observe) -> list[events.AnyEvent]:
    """Return the ends of the old object of a key, and of attempts to update that object."""
    where = (command.namespace, command.key, gone)
    tail = (command.version, command.actor)
    released: list[events.AnyEvent] = [
        events.Released(*where, events.OBJECT, events.Cause.DELETED, *tail)
    ]
    released += [
        events.Released(*where, hold.base, events.Cause.FENCED, *tail)
        for hold in entry.holds
        if hold.uid == gone and hold.base != commands.CREATE
    ]
    return released


def _charge_without(entry: Entry, released: list[events.AnyEvent]) -> Amounts:
    """Return the entry's charge after those releases."""
    if not released:
        return entry.charge
    gone = {(event.uid, event.base) for event in released if isinstance(event, events.Released)}
    charge = _NOTHING
    for hold in entry.holds:
        if (hold.uid, hold.base) not in gone:
            charge = amounts.largest(charge, hold.demand)
    return charge


def _ending_first(ending: list[Hold]) -> Hold:
    """Return the hold that the commit ends: the CREATE, else the newest base."""
    return min(ending, key=lambda hold: (hold.base != commands.CREATE, -hold.base))


def _committed(command: commands.Observe, ending: list[Hold]) -> list[events.AnyEvent]:
    where = (command.namespace, command.key, command.uid, command.version)
    tail = (command.actor, command.generation, command.devices or ())
    if not ending:
        return [events.Committed(*where, events.NO_HOLD, command.demand, *tail)]
    first = _ending_first(ending)
    demand = None if first.demand == command.demand else command.demand
    return [events.Committed(*where, first.base, demand, *tail), *_fenced(command, ending)]


def _fenced(command: commands.Observe, ending: list[Hold]) -> list[events.AnyEvent]:
    first = _ending_first(ending) if ending else None
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


def _observed(command: commands.Observe, cause: events.Cause, base: int) -> events.Observed:
    return events.Observed(
        command.namespace,
        command.key,
        command.uid,
        command.version,
        command.demand,
        cause,
        base,
        command.actor,
        command.root,
        command.traits,
        command.generation,
        command.devices or (),
    )
