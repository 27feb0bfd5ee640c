"""Place a pod: decides on which cards of a node it runs, if cards and quotas have room.

An extender may propose cards by an older state, so every rule is checked here again: the cards
exist and are usable, no other pod conflicts, and cards and quotas have room. Where quotas are
concerned, the event is applied and taken back, so that the check and the later charge are the same.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from ledger.core.decide import denial_wording, no_room_denial, room_check
from ledger.core.decide.cards import card_checks, claim_for_preemptor
from ledger.core.decide.denial_wording import DenialWording
from ledger.core.decide.room_check import Short
from ledger.core.evolve import placement_charges
from ledger.core.evolve.line_charges import TRUTH, Postings
from ledger.core.model import card_bookings, cards, commands, events
from ledger.core.model.accounts import AccountKind, kind
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Placement
from ledger.core.model.denials import Decision, Denial, Reason
from ledger.core.model.state import State

_OF_LINE: Final = {
    cards.MEMORY: Reason.CARD_INSUFFICIENT_MEMORY,
    cards.CORES: Reason.CARD_INSUFFICIENT_CORE,
    cards.SLOTS: Reason.CARD_TIME_SLICING_EXHAUSTED,
}


def place(state: State, command: commands.Place) -> Decision:
    """Decide on which cards a pod runs."""
    entry = state.entry(command.namespace, command.key)
    placed = state.placement(command.namespace, command.key)
    if entry is None or not entry.holds_uid(command.uid):
        return card_checks.unknown_pod(command.namespace, command.key, command.uid)
    if placed is not None and placed.node and placed.uid == command.uid:
        return _again(placed, command)
    wanted = card_bookings.summarize(command.parts)
    denial = card_checks.forbidden(state, command, wanted)
    if denial is not None:
        return denial
    event = events.Placed(
        command.namespace,
        command.key,
        command.uid,
        command.node,
        command.parts,
        _standing(state, command),
        events.Cause.SEEN if command.seen else "",
        command.actor,
        0 if command.seen else command.version,
    )
    if command.seen:
        return [event]
    if not event.stands:
        return _if_cards_have_room(state, event, wanted.bookings)
    return event_if_room(
        state,
        event,
        command.node,
        lambda: placement_charges.placed(state, event, state.time, TRUTH),
    )


def _again(before: Placement, command: commands.Place) -> Decision:
    if before.node == command.node and (before.parts == command.parts or command.seen):
        return []
    return card_checks.refused(
        Reason.POD_PLACED, f"{command.key} has cards of {before.node} already"
    )


def _standing(state: State, command: commands.Place) -> Amounts:
    """Return the amounts that cards decide, which replace those of the pod's spec.

    Amounts of earlier cards stay, unless the new cards decide them again.
    """
    before = state.namespaces[command.namespace].placed.get(command.key)
    if before is None or before.uid != command.uid:
        return command.stands
    return {**before.stands, **command.stands}


def _if_cards_have_room(
    state: State, event: events.Placed, wanted: card_bookings.Bookings
) -> Decision:
    """Return an event that adds nothing to quotas, or a denial when a card lacks the room."""
    held = (
        claim_for_preemptor.kept(state, event.node, event.namespace, event.key)
        if state.claims
        else {}
    )
    short = [
        Short(line, amount, state.used[line], amount, 0)
        for uuid, booking in wanted.items()
        for line, amount in zip(state.card_lines[event.node, uuid], booking, strict=True)
        if amount > 0 and state.used[line] + amount + held.get(line, 0) > state.limit[line]
    ]
    if not short:
        return [event]
    return _no_room(state, short, DenialWording(event.namespace, event.key), resizing=False)


def event_if_room(
    state: State,
    event: events.Placed | events.Resized,
    node: str,
    attempt: Callable[[], Postings],
) -> Decision:
    """Return the event, or a denial when its postings would bring a line over its limit."""
    held = claim_for_preemptor.kept(state, node, event.namespace, event.key) if state.claims else {}
    place = event.namespace, event.key
    with state.trying():
        short = room_check.over_limits(state, place, attempt(), held)
    if not short:
        return [event]
    return _no_room(state, short, DenialWording(*place), resizing=isinstance(event, events.Resized))


def _no_room(state: State, short: list[Short], asking: DenialWording, *, resizing: bool) -> Denial:
    """Return the denial; it names claims of other pods when only they take the room."""
    lines = no_room_denial.ranked_shortages(state, short, asking, ())
    real = tuple(line for line in lines if line.short > 0)
    if not real:
        return card_checks.refused(
            Reason.CARD_CLAIMED,
            f"{lines[0].message}; the rest is kept for a pod that others are evicted for",
        )
    of_quotas = kind(real[0].account) is not AccountKind.CARD
    denial = no_room_denial.denial_of(
        state, state.namespaces[asking.namespace], real, own_holders=True
    )
    if not of_quotas:
        denial = msgspec.structs.replace(denial, holders=(), holders_more=0)
    return msgspec.structs.replace(
        denial,
        reason=Reason.RESOURCE_QUOTA_NOT_FIT if of_quotas else _OF_LINE[real[0].resource],
        remedy=denial_wording.of_cards(real, resizing=resizing),
    )
