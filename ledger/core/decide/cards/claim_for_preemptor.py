"""Claim for a preemptor: the cards that are kept for it while its victims are evicted."""

from ledger.core.decide.cards import card_checks
from ledger.core.evolve.placement_charges import bookings_of
from ledger.core.evolve.preemption_claims import claim_of
from ledger.core.model import commands, events
from ledger.core.model.card_bookings import Booking, Bookings, booked, summarize
from ledger.core.model.cards import MIG, NodeCards, PreemptionClaim, card_of
from ledger.core.model.denials import Decision, Denial, Reason
from ledger.core.model.state import State


def make_room(state: State, command: commands.MakeRoom) -> Decision:
    """Decide to keep cards for a preemptor while its victims leave."""
    denial = _pointless(state, command)
    if denial is not None:
        return denial
    node = state.nodes.get(command.node)
    if node is None or node.gone:
        return card_checks.refused(
            Reason.NODE_UNREGISTERED, f"node {command.node} announces no cards"
        )
    wanted = summarize(command.parts)
    denial = (
        card_checks.missing(node, command.node, wanted, lost_too=False)
        or card_checks.at_odds(command.key, command.parts)
        or _never_free(state, node, command)
        or card_checks.in_the_way(state, command.node, wanted, command.namespace, command.victims)
    )
    if denial is not None:
        return denial
    known = _claim_on(state, command)
    asked = (command.uid, command.parts, command.victims)
    if known is not None and (known.uid, known.parts, known.victims) == asked:
        return []
    return [
        events.Claimed(
            command.namespace,
            command.key,
            command.uid,
            command.node,
            command.parts,
            command.victims,
            command.actor,
        )
    ]


def withdraw(state: State, command: commands.Withdraw) -> Decision:
    """Decide the end of a preemptor's claim."""
    known = claim_of(state, command.namespace, command.key)
    if known is None or known.uid != command.uid:
        return []
    return [
        events.Withdrawn(command.namespace, command.key, command.uid, command.cause, command.actor)
    ]


def kept(state: State, node: str, namespace: str, key: str) -> dict[int, int]:
    """Return the amounts of a node's cards that are kept for other pods, by line.

    Amounts that victims still hold are not counted twice, because the claim keeps these amounts.
    """
    amounts: dict[int, int] = {}
    for claim in state.claims.get(node, ()):
        if (claim.namespace, claim.key) == (namespace, key):
            continue
        held = _held_by(state, node, claim.victims)
        for uuid, booking in booked(claim.parts).items():
            there = held.get(uuid, Booking())
            lines = state.card_lines.get((node, uuid), ())  # none when the card is gone
            for line, want, has in zip(lines, booking, there, strict=False):
                amounts[line] = amounts.get(line, 0) + max(0, want - has)
    return amounts


def _claim_on(state: State, command: commands.MakeRoom) -> PreemptionClaim | None:
    """Return the claim of a pod on the node of a command."""
    for claim in state.claims.get(command.node, ()):
        if (claim.namespace, claim.key) == (command.namespace, command.key):
            return claim
    return None


def _pointless(state: State, command: commands.MakeRoom) -> Denial | None:
    """Refuse a claim of a pod that is placed, unknown, or asks for no card."""
    entry = state.entry(command.namespace, command.key)
    if entry is None or not entry.holds_uid(command.uid):
        return card_checks.unknown_pod(command.namespace, command.key, command.uid)
    wrong = card_checks.wrong_parts(summarize(command.parts))
    wrong = wrong or card_checks.elsewhere(command.node, command.namespace)
    if wrong:
        return card_checks.invalid(f"{command.key}: {wrong}", "parts", command.key)
    before = state.namespaces[command.namespace].placed.get(command.key)
    if before is not None and before.node:
        return card_checks.refused(
            Reason.POD_PLACED, f"{command.key} is placed on {before.node} already"
        )
    return None


def _never_free(state: State, node: NodeCards, command: commands.MakeRoom) -> Denial | None:
    """Refuse shares that would not be free after every victim has left."""
    leaving = _held_by(state, command.node, command.victims)
    others = kept(state, command.node, command.namespace, command.key)
    for uuid, booking in booked(command.parts).items():
        card = card_of(node, uuid)
        assert card is not None, "what is missing was refused"
        if not card.healthy or card.cordoned or card.mode == MIG:
            return card_checks.refused(
                Reason.CARD_NOT_HEALTHY, f"card {uuid} cannot be kept for any pod", card=uuid
            )
        freed = leaving.get(uuid, Booking())
        lines = state.card_lines[command.node, uuid]
        for line, want, free, limit in zip(lines, booking, freed, card.limits(), strict=True):
            if state.used[line] - free + others.get(line, 0) + want > limit:
                return card_checks.refused(
                    Reason.CARD_CLAIMED,
                    f"card {uuid} of node {command.node} would still be held by others",
                    card=uuid,
                )
    return None


def _held_by(state: State, node: str, victims: tuple[tuple[str, str, str], ...]) -> Bookings:
    """Return the bookings of pods, as `(namespace, key, uid)`, on a node's cards together."""
    bookings: Bookings = {}
    for namespace, key, uid in victims:
        placed = state.placement(namespace, key)
        if placed is None or (placed.uid, placed.node) != (uid, node):
            continue
        for uuid, booking in bookings_of(placed).items():
            there = bookings.get(uuid, Booking())
            bookings[uuid] = Booking(
                *(amount + more for amount, more in zip(there, booking, strict=True))
            )
    return bookings
