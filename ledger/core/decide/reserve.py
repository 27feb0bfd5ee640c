"""Reserve: decides whether an attempt to write an object may be made, before it is persisted.

An attempt is refused for lack of room, for an unknown amount of card memory, for too many unsettled
creations of its owner, or when its hold has another body.
"""

import itertools
from typing import Final

import msgspec

from ledger.core.decide import no_room_denial, room_check
from ledger.core.decide.room_check import Short
from ledger.core.evolve import device_bounds, envelope_charges, placement_charges, quota_coverage
from ledger.core.model import amounts, commands, display_names, events, traits
from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Decision, Denial, Reason
from ledger.core.model.state import Entry, Hold, Namespace, State

_NOTHING: Final[Amounts] = {}

_OWN: Final = ("", commands.BARRED)
"""The roots of an object that draws from no envelope."""


def reserve(state: State, command: commands.Reserve) -> Decision:
    """Decide an attempt."""
    space = state.namespaces.get(command.namespace)
    if space is not None:
        return _decided(state, space, command)
    if not command.demand:
        return []
    if not state.reaching:
        return [_reserved(command)]
    with state.trying():
        return _decided(state, quota_coverage.open_namespace(state, command.namespace), command)


def _decided(state: State, space: Namespace, command: commands.Reserve) -> Decision:
    entry = space.entries.get(command.key)
    if entry is not None:
        if envelope_charges.is_barred(entry, command.uid):
            command = msgspec.structs.replace(command, root=commands.BARRED)
        command = _standing(space, command)
        known = _known(state, space, entry, command)
        if known is not None:
            return known
    if not command.demand or _is_over(state, command):
        return []
    reserved = _reserved(_with_savings(space, command))
    if command.forced:
        return [reserved]
    denial = _unknown_amount(state, space, command) if command.unknown else None
    if denial is None and command.owner_holds_max:
        denial = _too_many_unsettled(space, command)
    if denial is None:
        denial = _no_room(state, space, command)
    return [reserved] if denial is None else denial


def _known(
    state: State, space: Namespace, entry: Entry, command: commands.Reserve
) -> Decision | None:
    """Decide an attempt that the stored object or a hold already covers."""
    settled = _already_settled(entry, command)
    if settled is not None:
        return settled
    hold = _hold_of(entry, command)
    return None if hold is None else _again(state, space, hold, command)


def _hold_of(entry: Entry, command: commands.Reserve) -> Hold | None:
    """Return the open hold of an attempt."""
    for hold in entry.holds:
        if hold.uid == command.uid and hold.base == command.base:
            return hold
    return None


def _already_settled(entry: Entry, command: commands.Reserve) -> Decision | None:
    """Return "nothing to do" when the stored object already covers the attempt."""
    stored = entry.committed
    if stored is None or stored.uid != command.uid:
        return None
    if command.base == commands.CREATE or command.base < stored.version:
        return []
    counted = not command.unknown and set(command.traits) <= set(stored.traits)
    if counted and amounts.covers(device_bounds.spec_envelope(stored), command.demand):
        return []
    return None


def _again(state: State, space: Namespace, hold: Hold, command: commands.Reserve) -> Decision:
    """Decide an attempt that already has a hold: the same body, or another at the same base."""
    if command.base == commands.CREATE:
        return [] if hold.demand == command.demand else _attempt_differs(hold, command)
    raised = _raised(hold, _with_savings(space, command))
    if command.forced:
        return [raised]
    denial = _no_room(state, space, command)
    return [raised] if denial is None else denial


def _raised(hold: Hold, command: commands.Reserve) -> events.Raised:
    return events.Raised(
        command.namespace,
        command.key,
        command.uid,
        command.base,
        amounts.largest(hold.demand, command.demand),
        command.actor,
        traits.united(hold.traits, command.traits),
        command.forced,
    )


def _no_room(state: State, space: Namespace, command: commands.Reserve) -> Denial | None:
    """Return a denial when any line has no room for the amounts that an attempt adds."""
    short = _short(state, space, command)
    if not short:
        return None

    def lacking(where: Namespace, demand: Amounts) -> dict[int, int]:
        tried = _standing(where, msgspec.structs.replace(command, demand=demand))
        return {
            shortfall.line: room_check.over_by(state, shortfall)
            for shortfall in _short(state, where, tried)
        }

    return no_room_denial.no_room(state, space, short, command, lacking)


def _short(state: State, space: Namespace, command: commands.Reserve) -> list[Short]:
    """Return the lines that have no room for the amounts that an attempt adds."""
    entry = space.entries.get(command.key)
    if entry is not None and _already_settled(entry, command) is not None:
        return []
    command = _with_savings(space, command)
    hold = None if entry is None else _hold_of(entry, command)
    # A hold is raised also without a demand, because quotas may select its new traits.
    if hold is None and not command.demand:
        return []
    root, demand = command.root, command.demand
    if entry is None and root and envelope_charges.is_within_envelope(space, root, demand):
        return []
    if not _is_simple(space, entry, command):
        event = _reserved(command) if hold is None else _raised(hold, command)
        return room_check.attempted(state, event, command)
    before = _NOTHING if entry is None else entry.charge
    return room_check.beyond_limits(state, space, before, amounts.largest(before, demand))


def _standing(space: Namespace, command: commands.Reserve) -> commands.Reserve:
    """Return the command with the demand that a placed pod is charged."""
    if command.key not in space.placed:
        return command
    demand = placement_charges.standing(space, command.key, command.uid, command.demand)
    return msgspec.structs.replace(command, demand=demand)


def _with_savings(space: Namespace, command: commands.Reserve) -> commands.Reserve:
    """Return an update of a root whose envelope has fallen with the demand that it adds to it."""
    entry = space.entries.get(command.key)
    stored = None if entry is None else entry.committed
    if stored is None or stored.bound is None:
        return command
    demand = device_bounds.with_earlier_savings(stored, command.uid, command.demand)
    return msgspec.structs.replace(command, demand=demand)


def _may_draw(entry: Entry) -> bool:
    """Return whether the object or any hold of a key draws from a root."""
    return any(body.root not in _OWN for body in entry.bodies())


def _is_simple(space: Namespace, entry: Entry | None, command: commands.Reserve) -> bool:
    """Return whether the added amounts follow from the attempt's own key alone."""
    if command.root not in _OWN or (entry is not None and _may_draw(entry)):
        return False
    return not space.selected and not envelope_charges.is_root(command.key)


def _is_over(state: State, command: commands.Reserve) -> bool:
    """Return whether the attempt's object has been created and deleted.

    A command may arrive late a second time: it was forwarded, not answered in time, and decided
    elsewhere.
    """
    ended = state.ended.get(command.uid)
    return ended is not None and command.base == commands.CREATE and ended.cause in events.GONE


def _reserved(command: commands.Reserve) -> events.Reserved:
    return events.Reserved(
        command.namespace,
        command.key,
        command.uid,
        command.base,
        command.demand,
        "",
        command.owner,
        command.actor,
        command.root,
        command.traits,
        command.forced,
    )


def _unknown_amount(state: State, space: Namespace, command: commands.Reserve) -> Denial | None:
    """Refuse a demand of an unknown amount of a resource that an account limits."""
    counting = itertools.chain(
        space.plan.pairs(),
        (
            (resource, line)
            for resource, line, selection in space.selected
            if traits.matches(selection, command.traits)
        ),
    )
    for resource, line in counting:
        if _is_unknown(resource, command):
            account, key = state.names[line]
            return Denial(
                Reason.CARD_MEMORY_UNKNOWN,
                f"{_named(command)} asks for a whole card or a percentage of one,"
                f" {display_names.display(account)}"
                f" limits {key}, and how much memory a card has is not"
                " known",
                transient=False,
                remedy=f"Ask for MiB with {resource}, or set worst_card_memory to the MiB"
                " to assume",
                field=resource,
            )
    return None


def _named(command: commands.Reserve) -> str:
    """Return the name of a resource claim, and the key of another object."""
    is_claim = command.key.startswith(envelope_charges.RESOURCE_CLAIMS)
    return display_names.object_name(command.key) if is_claim else command.key


def _is_unknown(resource: str, command: commands.Reserve) -> bool:
    """Return whether the demanded amount of a resource is unknown.

    For a pod of a type of card, the amount of the type's own resource is unknown, too.
    """
    kind = resource.removesuffix(command.unknown)
    if kind == resource:
        return False
    return not kind or any(name.startswith(kind) for name in command.demand)


def _too_many_unsettled(space: Namespace, command: commands.Reserve) -> Denial | None:
    bound = command.owner_holds_max
    if not command.owner or command.base != commands.CREATE:
        return None
    unsettled = space.owners.get(command.owner, 0)
    if unsettled < bound:
        return None
    return Denial(
        Reason.TOO_MANY_UNSETTLED,
        f"{command.owner} has {unsettled} creations in {command.namespace} whose outcome is not"
        f" known yet, and at most {bound} are allowed",
        transient=True,
        remedy="They settle within about a minute; look for what else refuses them,"
        " another webhook or a ResourceQuota",
        field="owner",
        value=command.owner,
    )


def _attempt_differs(hold: Hold, command: commands.Reserve) -> Denial:
    resource = min(
        name
        for name in {*hold.demand, *command.demand}
        if hold.demand.get(name, 0) != command.demand.get(name, 0)
    )
    return Denial(
        Reason.ATTEMPT_DIFFERS,
        f"attempt {command.uid} at {command.key} holds {resource}={hold.demand.get(resource, 0)}"
        f" and now asks for {resource}={command.demand.get(resource, 0)}",
        transient=False,
        remedy="An attempt to create has one body; this review does not come from an API server",
        field=resource,
        value=str(command.demand.get(resource, 0)),
    )
