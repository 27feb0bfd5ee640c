"""Card checks: the rules, other than sums, for whether a pod may have cards of a node.

A card may be unhealthy or cordoned, another pod may hold it exclusively, and MIG instances must lie
at allowed slices and not overlap. Each check returns a denial, None when it passes.
"""

from collections.abc import Container
from typing import Final

from ledger.core.model import card_bookings, cards
from ledger.core.model.amounts import AMOUNT_MAX
from ledger.core.model.card_bookings import PartsSummary
from ledger.core.model.cards import (
    Card,
    NodeCards,
    Parts,
    Phase,
    Placement,
    Share,
    Stage,
)
from ledger.core.model.commands import Place
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.qualified_names import cluster_of
from ledger.core.model.state import State

SHARES_MAX: Final = 1_024
"""Most shares of one pod, and most cards of a node; more are a mistake."""


def refused(reason: Reason, message: str, *, card: str = "") -> Denial:
    """Refuse a placement that another node, another card or a later moment may allow."""
    return Denial(reason, message, transient=True, field="card" if card else "", value=card)


def invalid(message: str, field: str, value: str) -> Denial:
    """Refuse a command that no state would allow."""
    return Denial(
        Reason.INVALID_PLACEMENT,
        message,
        transient=False,
        remedy="This is a defect of the caller; nothing was changed",
        field=field,
        value=value,
    )


def wrong_parts(wanted: PartsSummary) -> str:
    """Return the first mistake in the shares of a pod; empty without one."""
    shares = wanted.shares
    if not shares:
        return "no card is asked for"
    if len(shares) > SHARES_MAX:
        return f"{len(shares)} shares are more than {SHARES_MAX}"
    if not wanted.is_ordered:
        return "an init container comes after an app container"
    for share in shares:
        if not (0 <= share.memory <= AMOUNT_MAX and 0 <= share.cores <= AMOUNT_MAX):
            return f"a share of card {share.uuid} is {share.memory} MiB and {share.cores} %"
        if share.start < 0 or share.size < 0:
            return f"an instance of card {share.uuid} is {share.size} slices at {share.start}"
    return ""


def elsewhere(node: str, namespace: str) -> str:
    """Return a mistake when a node is of another cluster than a namespace; empty otherwise."""
    if cluster_of(node) == cluster_of(namespace):
        return ""
    return f"node {node} is of another cluster"


def forbidden(state: State, command: Place, wanted: PartsSummary) -> Denial | None:
    """Run the checks that need no sums; of a pod that runs already, only for contradictions."""
    denial = followed(state, command)
    if denial is not None:
        return denial
    node, name = state.nodes.get(command.node), command.node
    if node is None or (node.gone and not command.seen):
        return refused(Reason.NODE_UNREGISTERED, f"node {name} announces no cards")
    wrong = wrong_parts(wanted) or elsewhere(name, command.namespace)
    if wrong:
        return invalid(f"{command.key}: {wrong}", "parts", command.key)
    denial = missing(node, name, wanted, lost_too=command.seen)
    if denial is not None or command.seen:
        return denial
    return (
        busy(state, node, name, command.namespace)
        or unusable(state, node, name, command.parts, alone=command.alone)
        or in_the_way(state, name, wanted, command.namespace)
        or (kept_alone(state, command, wanted) if state.claims else None)
        or at_odds(command.key, command.parts)
    )


def unknown_pod(namespace: str, key: str, uid: str) -> Denial:
    """Refuse a pod without an entry in the ledger."""
    return refused(
        Reason.POD_UNKNOWN, f"the ledger does not have {namespace}/{key} of uid {uid} yet"
    )


def followed(state: State, command: Place) -> Denial | None:
    """Refuse a pod while an earlier pod of its name, of another uid, still has its cards."""
    placed = state.namespaces[command.namespace].placed.get(command.key)
    if placed is None or not placed.node:
        return None
    return refused(
        Reason.POD_PLACED,
        f"{command.key} of uid {placed.uid} has cards of {placed.node} until it is gone",
    )


def residents(state: State, node: str) -> list[tuple[str, str, Placement]]:
    """Return the placements on a node: namespace, key, placement."""
    return [
        (namespace, key, state.namespaces[namespace].placed[key])
        for namespace, key in state.residents.get(node, ())
    ]


def missing(node: NodeCards, name: str, wanted: PartsSummary, *, lost_too: bool) -> Denial | None:
    """Refuse cards that the node does not have."""
    known = {card.uuid for card in (*node.cards, *(node.lost if lost_too else ()))}
    for uuid in wanted.uuids:
        if uuid not in known:
            return refused(Reason.CARD_NOT_FOUND, f"node {name} has no card {uuid}", card=uuid)
    return None


def busy(state: State, node: NodeCards, name: str, asking: str) -> Denial | None:
    """Refuse a node that allocates cards to one pod at a time, while it does so.

    `asking` is the namespace of the refused pod.
    """
    if node.keeper != cards.HAMI:
        return None
    for namespace, key, placed in residents(state, name):
        if placed.stage < Stage.ALLOCATED:
            who = _named(namespace, key, asking)
            return refused(
                Reason.NODE_BUSY, f"node {name} is handing out cards to {who}, to one pod at a time"
            )
    return None


def _named(namespace: str, key: str, asking: str) -> str:
    """Return the pod's name for a denial, which names no objects of other namespaces."""
    return key if namespace == asking else "a pod of another namespace"


def unusable(
    state: State, node: NodeCards, name: str, parts: Parts, *, alone: bool
) -> Denial | None:
    """Refuse shares of cards that are unhealthy, cordoned, in use, or cannot be cut so."""
    known = {card.uuid: card for card in node.cards}
    for part in parts:
        for share in part.shares:
            denial = _unusable(state, name, known[share.uuid], share, alone=alone)
            if denial is not None:
                return denial
    return None


def in_the_way(
    state: State,
    name: str,
    wanted: PartsSummary,
    asking: str,
    leaving: Container[tuple[str, str, str]] = (),
) -> Denial | None:
    """Refuse exclusive cards in use, cards held exclusively, and overlapping instances.

    `asking` is the namespace of the refused pod. Pods in `leaving`, by namespace, key and uid, do
    not count.
    """
    for namespace, key, placed in residents(state, name):
        if (namespace, key, placed.uid) in leaving:
            continue
        taken = card_bookings.booked(placed.parts, initialised=placed.initialised)
        alone = card_bookings.exclusive_on(placed.parts, initialised=placed.initialised)
        for uuid in wanted.uuids.keys() & taken.keys():
            where, who = f"card {uuid} of node {name}", _named(namespace, key, asking)
            if uuid in alone or uuid in wanted.exclusive:
                return refused(
                    Reason.EXCLUSIVE_CONFLICT,
                    f"{who} has {where} alone" if uuid in alone else f"{who} is on {where}",
                    card=uuid,
                )
            if _overlaps(_instances(placed, uuid), card_bookings.instances(wanted.parts, uuid)):
                return refused(
                    Reason.CARD_MIG_INFEASIBLE, f"{who} has these slices of {where}", card=uuid
                )
    return None


def kept_alone(state: State, command: Place, wanted: PartsSummary) -> Denial | None:
    """Refuse a card that is claimed for exclusive use by another pod."""
    kept = {
        uuid
        for claim in state.claims.get(command.node, ())
        if (claim.namespace, claim.key) != (command.namespace, command.key)
        for uuid in card_bookings.exclusive_on(claim.parts)
    }
    for uuid in wanted.uuids:
        if uuid in kept:
            return refused(
                Reason.CARD_CLAIMED,
                f"card {uuid} of node {command.node} is kept for a pod that wants it alone",
                card=uuid,
            )
    return None


def clash(placed: Placement, other: Placement, uuid: str) -> bool:
    """Return whether instances of two placements have a slice of a card in common."""
    return _overlaps(_instances(placed, uuid), _instances(other, uuid))


def at_odds(key: str, parts: Parts) -> Denial | None:
    """Refuse a pod whose simultaneous containers would conflict on a card."""
    running: list[Share] = []
    for part in parts:
        for number, share in enumerate(part.shares):
            for other in (*running, *part.shares[:number]):
                if other.uuid == share.uuid and _excludes(share, other):
                    return refused(
                        Reason.CARD_MIG_INFEASIBLE if share.profile else Reason.EXCLUSIVE_CONFLICT,
                        f"two containers of {key} would take the same of card {share.uuid}",
                        card=share.uuid,
                    )
        if part.phase != Phase.INIT:
            running += part.shares
    return None


def _unusable(state: State, name: str, card: Card, share: Share, *, alone: bool) -> Denial | None:
    where = f"card {card.uuid} of node {name}"
    if not card.healthy:
        return refused(Reason.CARD_NOT_HEALTHY, f"{where} is not healthy", card=card.uuid)
    if card.cordoned:
        return refused(Reason.CARD_CORDONED, f"{where} is cordoned", card=card.uuid)
    _, cores, slots = state.card_lines[name, card.uuid]
    if alone and state.used[slots]:
        return refused(
            Reason.EXCLUSIVE_CONFLICT, f"{where} is in use, an unused one is wanted", card=card.uuid
        )
    if not share.cores and card.cores and state.used[cores] >= card.cores:
        return refused(
            Reason.CARD_COMPUTE_UNITS_EXHAUSTED,
            f"all {card.cores} % of {where} are promised",
            card=card.uuid,
        )
    if share.profile or card.mode == cards.MIG:
        return _no_instance(where, card, share)
    return None


def _no_instance(where: str, card: Card, share: Share) -> Denial | None:
    """Refuse a share that is not an instance into which the card can be cut."""
    if card.mode == cards.MIG and _is_instance(card, share):
        return None
    wanted = f"{share.profile or 'shares'} at slice {share.start}"
    return refused(
        Reason.CARD_MIG_INFEASIBLE, f"{where} cannot be cut into {wanted}", card=card.uuid
    )


def _is_instance(card: Card, share: Share) -> bool:
    return any(
        profile.name == share.profile
        and (share.start, share.size) in profile.placements
        and (share.memory, share.cores) == (profile.memory, profile.cores)
        for profile in card.profiles
    )


def _instances(placed: Placement, uuid: str) -> set[tuple[int, int]]:
    return card_bookings.instances(placed.parts, uuid, initialised=placed.initialised)


def _overlaps(there: set[tuple[int, int]], wanted: set[tuple[int, int]]) -> bool:
    return any(card_bookings.overlap(instance, other) for instance in there for other in wanted)


def _excludes(share: Share, other: Share) -> bool:
    if share.exclusive or other.exclusive:
        return True
    if not share.profile:
        return False
    return card_bookings.overlap((share.start, share.size), (other.start, other.size))
