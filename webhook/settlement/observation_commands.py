"""Observation commands: what follows from an observed object, compared with the ledger. Pure.

Time alone never ends an attempt. An attempt ends when its object or a newer version is observed, or
when a list that began after the bound proves that it was not written.
"""

import msgspec

from ledger.core.evolve.device_bounds import spec_envelope
from ledger.core.model import amounts
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import CREATE, End, Observe
from ledger.core.model.devices import DEVICES_MAX, Devices
from ledger.core.model.state import Entry, Hold, Object, State
from ledger.core.model.traits import Traits
from webhook.context.admitted_demand import NOTHING_AWAITED, Awaited, promised_demand


class ObservedObject(msgspec.Struct, frozen=True, gc=False):
    """An object at a version. `cause` is empty while it counts, else the cause of its release.

    `grace_ends` is the time when a terminating pod stops counting, in µs of Unix time, 0 for never.
    `problem` is the reason why a request is invalid; the demand is then empty. `root`, `traits` and
    `generation` are as in `commands.Observe`. A `gated` pod counts only once its demand is
    reserved. The demand for `assumed` resources depends on the cards that the cluster has now, and
    `awaited` is its part for resource claims that do not exist yet. `devices` are as in
    `commands.Observe`.
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
    awaited: Awaited = NOTHING_AWAITED
    devices: Devices | None = None


def command_if_changed(
    entry: Entry | None, seen: ObservedObject, actor: str
) -> Observe | End | None:
    """Return the command about an observation, None if the ledger agrees with it.

    Most writes of an object change only its status, and need no command.
    """
    stored, attempts = _known(entry, seen.uid)
    known = stored is not None or bool(attempts)
    if seen.cause:
        return command_for(seen, actor) if known else None
    if seen.gated and not is_reserved(entry, seen):
        return None
    if entry is None or (entry.committed is None and not attempts):
        return command_for(seen, actor) if seen.demand or seen.devices else None
    if stored is None:
        return command_for(seen, actor)
    if _is_as(stored, seen) and all(hold.base >= seen.version for hold in attempts):
        return None
    return command_for(_rising(stored, seen), actor)


def command_for(seen: ObservedObject, actor: str) -> Observe | End:
    """Return the command about an observation without a comparison with the ledger."""
    where = (seen.namespace, seen.key, seen.uid, seen.version)
    if seen.cause:
        return End(*where, seen.cause, actor)
    return Observe(
        *where, seen.demand, actor, seen.root, seen.traits, seen.generation, seen.devices
    )


def with_promised_demand(state: State, seen: ObservedObject) -> ObservedObject:
    """Return an observation with the demand that its object is charged; see `promised_demand`.

    A gated pod keeps the part for claims that do not exist, because it is about to be reserved.
    """
    place = seen.namespace, seen.key, seen.uid
    awaited = NOTHING_AWAITED if seen.gated else seen.awaited
    demand = promised_demand(state, place, seen.demand, seen.assumed, seen.devices, awaited=awaited)
    return seen if demand == seen.demand else msgspec.structs.replace(seen, demand=demand)


def is_reserved(entry: Entry | None, seen: ObservedObject) -> bool:
    """Return whether the demand of a gated pod is reserved.

    A hold counts only if it covers the observed pod. A reviewed change that was never written, for
    example because of a conflict, may hold amounts of other quotas than those of the pod.
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


def _known(entry: Entry | None, uid: str) -> tuple[Object | None, list[Hold]]:
    """Return the stored object of this uid and its open attempts, as the ledger has them."""
    if entry is None:
        return None, []
    stored = entry.committed
    if stored is not None and stored.uid != uid:
        stored = None
    return stored, [hold for hold in entry.holds if hold.uid == uid]


def _is_as(stored: Object, seen: ObservedObject) -> bool:
    """Return whether a stored object agrees with an observation; a status never raises a demand."""
    if (stored.root, stored.traits) != (seen.root, seen.traits):
        return False
    if seen.devices is not None and stored.devices != seen.devices[:DEVICES_MAX]:
        return False
    known = spec_envelope(stored)
    if known == seen.demand:
        return True
    if not stored.demand or not seen.generation or stored.generation != seen.generation:
        return False
    return amounts.smallest(seen.demand, known) == known


def _rising(stored: Object, seen: ObservedObject) -> ObservedObject:
    """Return the observation without its generation if the stored demand is empty.

    The demand is then raised even if the generation is the stored one. An empty demand may come
    from a policy, which can change while the object's generation stays.
    """
    return seen if stored.demand else msgspec.structs.replace(seen, generation=0)
