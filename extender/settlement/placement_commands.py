"""Placement commands: the commands that follow from a placed pod in the cluster. Pure.

The ledger has the cards of a pod that this extender placed; an annotation with other cards is
drift. For a bound pod that another scheduler placed, the annotation is the truth.
"""

from collections.abc import Sequence

from extender.settlement.card_settlement_session import SETTLED
from extender.settlement.pod_reader import PodReading
from ledger.core.model import cards
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Parts, Phase, Placement, Stage
from ledger.core.model.commands import Advance, Place, Unplace
from ledger.core.model.events import Cause
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_request_parser import device_request_of
from ledger.kube.requests.device_requests import PodDeviceRequest
from ledger.kube.requests.quota_demand_of_placement import demand_of_placement, placement_overrides


def is_placed(placed: Placement | None, uid: str) -> bool:
    """Return whether a placement is on a node, and of the pod of this uid."""
    return placed is not None and placed.uid == uid and bool(placed.node)


def missing_cards(node: cards.NodeCards | None, parts: Parts) -> str:
    """Return why a pod cannot be charged on its node; empty if it can."""
    if node is None:
        return "its node announces no cards"
    known = {card.uuid for card in (*node.cards, *node.lost)}
    unknown = [uuid for uuid in cards.uuids(parts) if uuid not in known]
    return f"its node has no card {', '.join(unknown)}" if unknown else ""


def place_observed(
    reading: PodReading, pod: Pod, node: cards.NodeCards, rules: DemandRules
) -> Place:
    """Return the command that charges a pod on the cards that another scheduler gave it."""
    assert reading.parts is not None, "a pod without cards is not placed"
    devices, over = _devices_of(pod, rules), reading.initialised
    stands = placement_overrides(reading.parts, devices, rules, _all(node), initialised=over)
    return Place(
        reading.namespace,
        reading.key,
        reading.uid,
        reading.node,
        reading.parts,
        stands,
        seen=True,
        actor=SETTLED,
    )


def advance_for_observed(reading: PodReading) -> Advance | None:
    """Return the command for the stage of a newly observed pod, None at the first stage."""
    assert reading.parts is not None, "a pod without cards is not placed"
    over = reading.initialised and _takes_first(reading.parts)
    if reading.stage <= Stage.BOUND and not over:
        return None
    where = reading.namespace, reading.key, reading.uid
    return Advance(*where, reading.stage, over, {}, SETTLED, reading.node)


def observed_demand(parts: Parts, pod: Pod, node: cards.NodeCards, rules: DemandRules) -> Amounts:
    """Return the demand of a pod by the cards that it was given."""
    return demand_of_placement(parts, _devices_of(pod, rules), rules, _all(node))


def unplace_from_old_node(reading: PodReading, placed: Placement) -> Unplace:
    """Return the command that gives back the cards of a node on which the pod is not."""
    where = reading.namespace, reading.key, reading.uid
    return Unplace(*where, placed.node, Cause.UNBOUND, SETTLED, bound=True)


def advance_if_changed(
    reading: PodReading,
    placed: Placement,
    pod: Pod,
    node: cards.NodeCards | None,
    rules: DemandRules,
) -> Advance | None:
    """Return the command for the stage of a placement, None if it has not changed."""
    over = reading.initialised and not placed.initialised and _takes_first(placed.parts)
    if reading.stage <= placed.stage and not over:
        return None
    stands: Amounts = {}
    if over and node is not None:
        asked = placed.parts, _devices_of(pod, rules), rules, _all(node)
        remaining = demand_of_placement(*asked, initialised=True)
        stands = {name: remaining.get(name, 0) for name in demand_of_placement(*asked)}
    where = reading.namespace, reading.key, reading.uid
    over = over or placed.initialised
    return Advance(*where, reading.stage, over, stands, SETTLED, placed.node)


def annotation_drift(reading: PodReading, placed: Placement) -> str:
    """Return how a pod's annotations contradict its placement; empty if they do not.

    Other amounts are allowed, because the pod may have been resized.
    """
    if reading.problem:
        return reading.problem
    if reading.parts is None:
        return "" if reading.stage < Stage.BOUND else "its annotations name no cards any more"
    named, placed_on = _outline(reading.parts), _outline(placed.parts)
    return (
        ""
        if named == placed_on
        else f"its annotations name {_shown(named)}, it has {_shown(placed_on)}"
    )


def is_outdated(reading: PodReading, placed: Placement) -> bool:
    """Return whether a pod's annotations give it other amounts of its cards than the ledger."""
    return reading.parts is not None and _amounts(reading.parts) != _amounts(placed.parts)


def _takes_first(parts: Parts) -> bool:
    """Return whether init containers take cards."""
    return any(part.shares for part in parts if part.phase == Phase.INIT)


def _devices_of(pod: Pod, rules: DemandRules) -> PodDeviceRequest:
    """Return the device request of a pod, an empty one if it is invalid."""
    devices = device_request_of(pod, rules)
    return devices if isinstance(devices, PodDeviceRequest) else PodDeviceRequest(())


def _all(node: cards.NodeCards) -> tuple[cards.Card, ...]:
    return (*node.cards, *node.lost)


_Outline = list[tuple[str, list[str]]]


def _outline(parts: Parts) -> _Outline:
    """Return the sorted cards of each container that has any."""
    return [
        (part.container, sorted(share.uuid for share in part.shares))
        for part in parts
        if part.shares
    ]


def _amounts(parts: Parts) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """Return the sorted amounts of each container that has cards."""
    return [
        (part.container, sorted((one.uuid, one.memory, one.cores) for one in part.shares))
        for part in parts
        if part.shares
    ]


def _shown(outline: Sequence[tuple[str, list[str]]]) -> str:
    return "; ".join(f"{name}: {', '.join(uuids)}" for name, uuids in outline) or "none"
