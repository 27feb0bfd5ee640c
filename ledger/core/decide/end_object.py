"""End an object: decides which charges end with a deleted, finished or never written object.

An object whose root or labels changed (`Cause.MOVED`) keeps the attempts that may still be written.
"""

from ledger.core.evolve import envelope_charges
from ledger.core.model import commands, events
from ledger.core.model.denials import Decision
from ledger.core.model.state import Hold, State


def end(state: State, command: commands.End) -> Decision:
    """Decide the end of an object and of its attempts."""
    space = state.namespaces.get(command.namespace)
    entry = space.entries.get(command.key) if space is not None else None
    if entry is None:
        return []
    if command.cause == events.Cause.MOVED and envelope_charges.is_barred(entry, command.uid):
        return []
    released: list[events.AnyEvent] = []
    where = (command.namespace, command.key, command.uid)
    if entry.committed is not None and entry.committed.uid == command.uid:
        released.append(
            events.Released(*where, events.OBJECT, command.cause, command.version, command.actor)
        )
    for hold in entry.holds:
        if hold.uid != command.uid:
            continue
        if command.cause == events.Cause.MOVED and hold.base >= command.version > 0:
            continue  # it may still be written on top of the observed version
        cause = command.cause if hold.base == commands.CREATE else events.Cause.FENCED
        released.append(events.Released(*where, hold.base, cause, command.version, command.actor))
    return released


def refute(state: State, command: commands.Refute) -> Decision:
    """Decide the end of an attempt that was not written and no longer can be."""
    space = state.namespaces.get(command.namespace)
    entry = space.entries.get(command.key) if space is not None else None
    for hold in entry.holds if entry is not None else ():
        if _is_refuted(hold, command):
            where = (command.namespace, command.key, command.uid)
            return [
                events.Released(*where, command.base, command.cause, 0, command.actor),
            ]
    return []


def _is_refuted(hold: Hold, command: commands.Refute) -> bool:
    if hold.uid != command.uid or hold.base != command.base:
        return False
    return command.raises in (commands.ANY_RAISES, hold.raises)
