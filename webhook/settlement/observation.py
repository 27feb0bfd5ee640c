"""Sightings: what the API server told of an object, and what that means for the ledger.

Everything here is pure. An attempt is never ended because time has passed: either its object or a
newer version was seen, or a list that began after the bound proves that it was not written.
"""

from collections.abc import Callable, Iterator

import msgspec

from ledger.core.model import amounts
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import CREATE, End, Observe, Refute
from ledger.core.model.events import Cause
from ledger.core.model.state import Entry, Hold, Object, State
from ledger.core.model.traits import Traits
from webhook.context.assumed_demand import promised_demand

Attempt = tuple[str, int]
"""`(uid, base)`: one possible write of a key."""

Proven = Callable[[Attempt], bool]
"""Whether an attempt was open for longer than any request can last when a list began."""


class ObservedObject(msgspec.Struct, frozen=True, gc=False):
    """An object at a version. `cause` is empty while it counts, else why its charge ends.

    `grace_ends` is when a terminating pod stops counting, in µs of Unix time, 0 for never.
    `problem` says why its request cannot be understood; the demand is then nothing. `root`,
    `traits` and `generation` are as in `commands.Observe`. `gated` says that a pod waits until
    something is reserved for it: it does not count before. `assumed` are the resources of which the
    demand rests on which cards there are now.
    """

    namespace: str
    key: str
    uid: str
    version: int
    demand: Amounts
    cause: str = ""
    grace_ends: int = 0
    problem: str = ""
    root: str = ""
    traits: Traits = ()
    generation: int = 0
    gated: bool = False
    assumed: tuple[str, ...] = ()


def command_if_changed(
    entry: Entry | None, seen: ObservedObject, actor: str
) -> Observe | End | None:
    """Return the command that tells the ledger what was seen, None when it knows.

    Most writes of an object change its status only; they cost nothing.
    """
    stored, attempts = _known(entry, seen.uid)
    known = stored is not None or bool(attempts)
    if seen.cause:
        return command_for(seen, actor) if known else None
    if seen.gated and not is_reserved(entry, seen):
        return None
    if entry is None or (entry.committed is None and not attempts):
        return command_for(seen, actor) if seen.demand else None
    if stored is None:
        return command_for(seen, actor)
    if _is_as(stored, seen) and all(hold.base >= seen.version for hold in attempts):
        return None
    return command_for(_rising(stored, seen), actor)


def command_for(seen: ObservedObject, actor: str) -> Observe | End:
    """Return the command that says what was seen, whatever the ledger knows."""
    where = (seen.namespace, seen.key, seen.uid, seen.version)
    if seen.cause:
        return End(*where, seen.cause, actor)
    return Observe(*where, seen.demand, actor, seen.root, seen.traits, seen.generation)


def holds_uid(entry: Entry | None, uid: str) -> bool:
    """Return whether an entry is charged for the object of this uid, or holds something for it."""
    stored, attempts = _known(entry, uid)
    return stored is not None or bool(attempts)


def with_promised_demand(state: State, seen: ObservedObject) -> ObservedObject:
    """Return an observation with the demand that its object is charged; see `promised_demand`."""
    place = seen.namespace, seen.key, seen.uid
    demand = promised_demand(state, place, seen.demand, seen.assumed)
    return seen if demand == seen.demand else msgspec.structs.replace(seen, demand=demand)


def is_reserved(entry: Entry | None, seen: ObservedObject) -> bool:
    """Return whether room is reserved for a gated pod as it was seen.

    A change that was reviewed and not written, such as one that lost against another, may hold room
    of quotas that do not count the pod as it is.
    """
    stored, attempts = _known(entry, seen.uid)
    return stored is not None or any(
        hold.base == CREATE
        or (
            hold.base < seen.version
            and hold.traits == seen.traits
            and amounts.covers(hold.demand, seen.demand)
        )
        for hold in attempts
    )


def recorded_root(entry: Entry | None, uid: str) -> str:
    """Return the root that the ledger has recorded for an object, empty when it has none."""
    stored, attempts = _known(entry, uid)
    if stored is not None:
        return stored.root
    return attempts[0].root if attempts else ""


def end_missing(
    namespace: str,
    key: str,
    entry: Entry,
    present: str,
    version: int,
    actor: str,
    proven: Proven | None = None,
) -> Iterator[End | Refute]:
    """Yield the ends of what a list at `version` does not hold at this key.

    `present` is the uid that the list does hold there, or empty. Whatever was known to exist up to
    that version is deleted; a creation that was never seen is refuted only when it is `proven`
    that it can no longer be written.
    """
    for uid in _uids(entry):
        if uid == present:
            continue
        if _existed(entry, uid, version):
            yield End(namespace, key, uid, version, Cause.DELETED, actor)
        elif proven is not None and proven((uid, CREATE)):
            yield Refute(namespace, key, uid, CREATE, Cause.ABSENT, actor)


def refute_unwritten(
    entry: Entry, seen: ObservedObject, actor: str, proven: Proven
) -> Iterator[Refute]:
    """Yield the ends of updates whose base is still what is stored, where that is `proven`.

    Of a pod that still waits, they end also where a newer version is stored: nothing commits it.
    """
    waits = seen.gated and not is_reserved(entry, seen)
    for hold in entry.holds:
        unwritten = hold.base >= seen.version or waits
        if hold.uid == seen.uid and unwritten and proven((hold.uid, hold.base)):
            where = (seen.namespace, seen.key, hold.uid, hold.base)
            yield Refute(*where, Cause.ABSENT, actor, raises=hold.raises)


def _known(entry: Entry | None, uid: str) -> tuple[Object | None, list[Hold]]:
    """Return what the ledger knows of the object of this uid: as stored, and its attempts."""
    if entry is None:
        return None, []
    stored = entry.committed
    if stored is not None and stored.uid != uid:
        stored = None
    return stored, [hold for hold in entry.holds if hold.uid == uid]


def _is_as(stored: Object, seen: ObservedObject) -> bool:
    """Return whether a sighting says what is known; a status alone never raises a demand."""
    if (stored.root, stored.traits) != (seen.root, seen.traits):
        return False
    if stored.demand == seen.demand:
        return True
    if not stored.demand or not seen.generation or stored.generation != seen.generation:
        return False
    return amounts.smallest(seen.demand, stored.demand) == stored.demand


def _rising(stored: Object, seen: ObservedObject) -> ObservedObject:
    """Return a sighting that may raise what was charged nothing.

    That the ledger charges a root nothing may come from a policy, which may change while the
    object's generation stays.
    """
    return seen if stored.demand else msgspec.structs.replace(seen, generation=0)


def _uids(entry: Entry) -> dict[str, None]:
    """Return the uids that an entry names, each once, in order."""
    uids = dict.fromkeys(hold.uid for hold in entry.holds)
    return uids if entry.committed is None else {entry.committed.uid: None, **uids}


def _existed(entry: Entry, uid: str, version: int) -> bool:
    """Return whether the object was known to exist at or before a version, and not after it."""
    if entry.committed is not None and entry.committed.uid == uid:
        return entry.committed.version <= version
    return any(hold.uid == uid and CREATE < hold.base <= version for hold in entry.holds)
