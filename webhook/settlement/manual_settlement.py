"""Settling by hand: somebody says what became of an object, where no cluster can be asked."""

from enum import StrEnum

from ledger.core.model.commands import AnyCommand, End, Observe, Refute
from ledger.core.model.events import Cause
from ledger.core.model.state import Entry, State


class ObjectOutcome(StrEnum):
    """What became of an object that the ledger has a charge for."""

    PERSISTED = "persisted"
    """It was written: its newest open attempt is committed."""
    ABSENT = "absent"
    """It was not written: its open attempts are released."""
    DELETED = "deleted"
    """It is gone: everything it is charged is released."""


class NothingToSettle(LookupError):
    """The ledger has nothing of this kind for the uid; the message says what to look at."""


def commands_of(state: State, uid: str, fate: ObjectOutcome, actor: str) -> list[AnyCommand]:
    """Return the commands that settle an object by its uid, on the word of `actor`.

    Raises NothingToSettle when the ledger has no charge, or no open attempt, for the uid.
    """
    found = [
        command
        for namespace, space in state.namespaces.items()
        for key, entry in space.entries.items()
        for command in _settle(namespace, key, entry, uid, fate, actor)
    ]
    if not found:
        what = "charge" if fate is ObjectOutcome.DELETED else "open attempt"
        raise NothingToSettle(
            f"the ledger has no {what} for uid {uid}; `gpuledger holds` and `gpuledger holders`"
            " list what there is"
        )
    return found


def _settle(
    namespace: str, key: str, entry: Entry, uid: str, fate: ObjectOutcome, actor: str
) -> list[AnyCommand]:
    holds = [hold for hold in entry.holds if hold.uid == uid]
    stored = entry.committed if entry.committed and entry.committed.uid == uid else None
    if fate is ObjectOutcome.DELETED:
        return [End(namespace, key, uid, 0, Cause.DELETED, actor)] if holds or stored else []
    if fate is ObjectOutcome.ABSENT:
        return [Refute(namespace, key, uid, hold.base, Cause.OPERATOR, actor) for hold in holds]
    if not holds:
        return []
    newest = max(holds, key=lambda hold: hold.base)
    # The real version is not known; the smallest one that fits is the one after what is known.
    version = 1 + max(newest.base, stored.version if stored is not None else 0)
    seen = (version, newest.demand, actor, newest.root, newest.traits)
    return [Observe(namespace, key, uid, *seen)]
