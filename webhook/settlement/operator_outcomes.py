"""Operator outcomes: commands that settle an object as an operator reports, without its cluster."""

from enum import StrEnum

from ledger.core.model.commands import AnyCommand, End, Observe, Refute
from ledger.core.model.events import Cause
from ledger.core.model.state import Entry, State


class ObjectOutcome(StrEnum):
    """The outcome of an object's write, as the operator reports it."""

    PERSISTED = "persisted"
    """Its newest open attempt was written, and is committed."""
    ABSENT = "absent"
    """Its open attempts were not written, and are released."""
    DELETED = "deleted"
    """It was deleted, and its whole charge is released."""


class NothingToSettle(LookupError):
    """The ledger has no charge or open attempt for the uid; the message has the remedy."""


def outcome_commands(
    state: State, uid: str, outcome: ObjectOutcome, actor: str
) -> list[AnyCommand]:
    """Return the commands with which `actor` settles the object of a uid.

    Raises NothingToSettle if the ledger has no charge, or no open attempt, for the uid.
    """
    commands = [
        command
        for namespace, space in state.namespaces.items()
        for key, entry in space.entries.items()
        for command in _settle_entry(namespace, key, entry, uid, outcome, actor)
    ]
    if not commands:
        what = "charge" if outcome is ObjectOutcome.DELETED else "open attempt"
        raise NothingToSettle(
            f"the ledger has no {what} for uid {uid}; `gpuledger holds` and `gpuledger holders`"
            " list what there is"
        )
    return commands


def _settle_entry(
    namespace: str, key: str, entry: Entry, uid: str, outcome: ObjectOutcome, actor: str
) -> list[AnyCommand]:
    holds = [hold for hold in entry.holds if hold.uid == uid]
    stored = entry.committed if entry.committed and entry.committed.uid == uid else None
    if outcome is ObjectOutcome.DELETED:
        return [End(namespace, key, uid, 0, Cause.DELETED, actor)] if holds or stored else []
    if outcome is ObjectOutcome.ABSENT:
        return [Refute(namespace, key, uid, hold.base, Cause.OPERATOR, actor) for hold in holds]
    if not holds:
        return []
    newest = max(holds, key=lambda hold: hold.base)
    # The stored version is unknown. The smallest possible one follows the largest known one.
    version = 1 + max(newest.base, stored.version if stored is not None else 0)
    seen = (version, newest.demand, actor, newest.root, newest.traits)
    return [Observe(namespace, key, uid, *seen)]
