"""Resize a placed pod: decides other amounts for its containers on the cards that they have.

The cards stay the same, and their lines and the quotas must have room for what is added.
"""

from ledger.core.decide.cards import card_checks
from ledger.core.decide.cards.place_pod import event_if_room
from ledger.core.evolve import placement_charges
from ledger.core.evolve.line_charges import TRUTH
from ledger.core.model import card_bookings, commands, events
from ledger.core.model.cards import Parts
from ledger.core.model.denials import Decision, Reason
from ledger.core.model.state import State


def resize(state: State, command: commands.Resize) -> Decision:
    """Decide other amounts of the same cards."""
    placed = state.cards_held(command.namespace, command.key, command.uid)
    if placed is None:
        return card_checks.refused(
            Reason.POD_UNKNOWN, f"{command.key} of uid {command.uid} is placed on no card"
        )
    wrong = card_checks.wrong_parts(card_bookings.summarize(command.parts))
    wrong = wrong or _moved(placed.parts, command.parts)
    if wrong:
        return card_checks.invalid(f"{command.key}: {wrong}", "parts", command.key)
    stands = {**placed.stands, **command.stands}
    if (placed.parts, placed.stands) == (command.parts, stands):
        return []
    event = events.Resized(
        command.namespace, command.key, command.uid, command.parts, stands, command.actor
    )
    return event_if_room(
        state,
        event,
        placed.node,
        lambda: placement_charges.resized(state, event, state.time, TRUTH),
    )


def _moved(before: Parts, after: Parts) -> str:
    """Return a mistake when a resize would change more than amounts; empty otherwise."""
    if _outline(before) != _outline(after):
        return "a resize keeps the containers, their cards and who has one alone"
    if any(share.profile for part in before for share in part.shares):
        return "an instance of a card that is cut cannot be resized"
    return ""


def _outline(parts: Parts) -> list[tuple[object, ...]]:
    """Return the parts without their amounts."""
    return [
        (
            part.container,
            part.phase,
            *(
                (share.uuid, share.exclusive, share.profile, share.start, share.size)
                for share in part.shares
            ),
        )
        for part in parts
    ]
