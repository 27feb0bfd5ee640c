"""Sightings: what the API server told of a pod, and what that means for the ledger.

Everything here is pure. An attempt is never ended because time has passed: either its object or a
newer version was seen, or a list that began after the bound proves that it was not written.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from ledger.core import accounts
from ledger.core.amounts import Amounts
from ledger.core.commands import CREATE, End, Observe, Refute
from ledger.core.denials import Denial, sentence
from ledger.core.events import Cause
from ledger.core.state import Entry
from ledger.kube.demand import DemandRules, demand_of
from ledger.kube.objects import Pod

POD_KEYS: Final = "pods/"
"""How the keys of pods begin; settlement speaks for no other kind."""

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Attempt = tuple[str, int]
"""`(uid, base)`: one possible write of a key."""

Proven = Callable[[Attempt], bool]
"""Whether an attempt was open for longer than any request can last when a list began."""


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """A pod at a version. `cause` is empty while it counts, else why its charge ends.

    `grace_ends` is when a terminating pod stops counting, in µs of Unix time, 0 for never.
    `problem` says why its request cannot be understood; the demand is then nothing.
    """

    namespace: str
    key: str
    uid: str
    version: int
    demand: Amounts
    cause: str = ""
    grace_ends: int = 0
    problem: str = ""


def sight(pod: Pod, cluster: str, rules: DemandRules, now: int, *, deleted: bool) -> Sighting:
    """Read a pod as the ledger sees it at `now`, in µs of Unix time."""
    demand = demand_of(pod, rules)
    problem = sentence(demand) if isinstance(demand, Denial) else ""
    meta = pod.metadata
    grace_ends = _grace_ends(pod)
    finished = pod.status.phase in _TERMINAL or 0 < grace_ends < now
    return Sighting(
        accounts.qualified(cluster, meta.namespace),
        POD_KEYS + meta.name,
        meta.uid,
        meta.version(),
        {} if isinstance(demand, Denial) else demand.amounts,
        Cause.DELETED if deleted else Cause.FINISHED if finished else "",
        grace_ends,
        problem,
    )


def news(entry: Entry | None, seen: Sighting, actor: str) -> Observe | End | None:
    """Return the command that tells the ledger what was seen, None when it knows.

    Most writes of a pod change its status only; they cost nothing.
    """
    if entry is None:
        return told(seen, actor) if seen.demand and not seen.cause else None
    stored = entry.committed
    known = stored is not None and stored.uid == seen.uid
    attempts = [hold for hold in entry.holds if hold.uid == seen.uid]
    if seen.cause:
        return told(seen, actor) if known or attempts else None
    if not seen.demand and stored is None and not attempts:
        return None
    same = stored is not None and known and stored.demand == seen.demand
    if same and all(hold.base >= seen.version for hold in attempts):
        return None
    return told(seen, actor)


def told(seen: Sighting, actor: str) -> Observe | End:
    """Return the command that says what was seen, whatever the ledger knows."""
    if seen.cause:
        return End(seen.namespace, seen.key, seen.uid, seen.version, seen.cause, actor)
    return Observe(seen.namespace, seen.key, seen.uid, seen.version, seen.demand, actor)


def missing(
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


def unwritten(entry: Entry, seen: Sighting, actor: str, proven: Proven) -> Iterator[Refute]:
    """Yield the ends of updates whose base is still what is stored, where that is `proven`."""
    for hold in entry.holds:
        if hold.uid == seen.uid and hold.base >= seen.version and proven((hold.uid, hold.base)):
            where = (seen.namespace, seen.key, hold.uid, hold.base)
            yield Refute(*where, Cause.ABSENT, actor, raises=hold.raises)


def _uids(entry: Entry) -> dict[str, None]:
    """Return the uids that an entry names, each once, in order."""
    uids = dict.fromkeys(hold.uid for hold in entry.holds)
    return uids if entry.committed is None else {entry.committed.uid: None, **uids}


def _existed(entry: Entry, uid: str, version: int) -> bool:
    """Return whether the object was known to exist at or before a version, and not after it."""
    if entry.committed is not None and entry.committed.uid == uid:
        return entry.committed.version <= version
    return any(hold.uid == uid and CREATE < hold.base <= version for hold in entry.holds)


def _grace_ends(pod: Pod) -> int:
    """Return when a terminating pod stops counting: the rule of Kubernetes' own quota.

    A pod whose node is lost is never confirmed as deleted. It counts until its grace period has
    passed after its deletion timestamp.
    """
    meta = pod.metadata
    if meta.deletion_timestamp is None or meta.deletion_grace_period_seconds is None:
        return 0
    grace = timedelta(seconds=meta.deletion_grace_period_seconds)
    return (meta.deletion_timestamp + grace - _EPOCH) // _MICROSECOND
