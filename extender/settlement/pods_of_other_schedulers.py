"""Pods of other schedulers: bound pods are charged on the cards that their annotations name. Pure.

The same commands import the pods of HAMi.
"""

from typing import TYPE_CHECKING

from extender.settlement.card_reconciler_context import SETTLED
from ledger.core.model import cards
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import Parts
from ledger.core.model.commands import Place
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_request_parser import device_request_of
from ledger.kube.requests.device_requests import PodDeviceRequest
from ledger.kube.requests.placements.quota_demand_of_placement import (
    demand_of_placement,
    placement_overrides,
)

if TYPE_CHECKING:
    from extender.settlement.placed_pod_reader import PodReading


def missing_cards(node: cards.NodeCards | None, parts: Parts) -> str:
    """Return why a pod cannot be charged on its node; empty if it can."""
    if node is None:
        return "its node announces no cards"
    known = {card.uuid for card in (*node.cards, *node.lost)}
    unknown = [uuid for uuid in cards.uuids(parts) if uuid not in known]
    return f"its node has no card {', '.join(unknown)}" if unknown else ""


def place_observed(
    reading: "PodReading", pod: Pod, node: cards.NodeCards, rules: DemandRules
) -> Place:
    """Return the command that charges a pod on the cards that another scheduler gave it."""
    assert reading.parts is not None, "a pod without cards is not placed"
    devices, over = devices_of(pod, rules), reading.initialised
    stands = placement_overrides(reading.parts, devices, rules, all_cards(node), initialised=over)
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


def observed_demand(parts: Parts, pod: Pod, node: cards.NodeCards, rules: DemandRules) -> Amounts:
    """Return the demand of a pod by the cards that it was given."""
    return demand_of_placement(parts, devices_of(pod, rules), rules, all_cards(node))


def devices_of(pod: Pod, rules: DemandRules) -> PodDeviceRequest:
    """Return the device request of a pod, an empty one if it is invalid."""
    devices = device_request_of(pod, rules)
    return devices if isinstance(devices, PodDeviceRequest) else PodDeviceRequest(())


def all_cards(node: cards.NodeCards) -> tuple[cards.Card, ...]:
    """Return the cards of a node, also the lost ones."""
    return (*node.cards, *node.lost)
