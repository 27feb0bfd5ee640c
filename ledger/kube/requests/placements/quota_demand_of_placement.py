"""Quota demand of a placement: the amounts that a pod is charged once its cards are known.

Before that, a percentage of a card, or a whole card, is charged for the largest possible card. A
MIG instance may be larger than the request. After the placement, the amounts of the actual cards
override those of the pod's spec.
"""

from collections.abc import Iterable, Iterator, Mapping

from ledger.core.model.amounts import Amounts, largest, plus
from ledger.core.model.cards import Card, Part, Parts, Phase, Share
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_requests import DeviceRequest, PodDeviceRequest
from ledger.kube.vendors.vendors import Vendor


def placement_overrides(
    parts: Parts,
    request: PodDeviceRequest,
    rules: DemandRules,
    cards: Iterable[Card],
    *,
    initialised: bool = False,
) -> Amounts:
    """Return the amounts that depend on the cards, by resource; empty if there are none.

    `cards` are the cards of the node, with their vendors. If `initialised` is true, the init
    containers have ended and are not counted.
    """
    cards = tuple(cards)
    decided = _decided(parts, request, rules, cards)
    if not decided:
        return {}
    amounts = demand_of_placement(parts, request, rules, cards, initialised=initialised)
    return {name: amounts.get(name, 0) for name in sorted(_typed(decided, request, rules))}


def demand_of_placement(
    parts: Parts,
    request: PodDeviceRequest,
    rules: DemandRules,
    cards: Iterable[Card],
    *,
    initialised: bool = False,
) -> Amounts:
    """Return the amounts of all parts, by resource, as `demand_of` returns them for a spec.

    After a resize these amounts are charged, because they differ from the spec.
    """
    vendors = {card.uuid: card.vendor for card in cards}
    running: Amounts = {}
    peak: Amounts = {}
    for part in parts:
        if part.phase == Phase.INIT and initialised:
            continue
        beside = plus(running, _taken(part, request, rules, vendors))
        if part.phase != Phase.INIT:
            running = beside
        peak = largest(peak, beside)
    return peak | {
        typed: peak[resource]
        for resource in peak
        for typed in _typed({resource}, request, rules)
        if typed != resource
    }


def _taken(
    part: Part, request: PodDeviceRequest, rules: DemandRules, vendors: Mapping[str, str]
) -> Amounts:
    """Return the amounts of one container, by resource."""
    taken: Amounts = {}
    for share, vendor, _ in _read(part, request, rules, vendors):
        amounts = (vendor.count, 1), (vendor.memory, share.memory), (vendor.cores, share.cores)
        taken = plus(taken, {name: amount for name, amount in amounts if name})
    return taken


def _decided(
    parts: Parts, request: PodDeviceRequest, rules: DemandRules, cards: Iterable[Card]
) -> set[str]:
    """Return the resources whose amounts depend on the cards."""
    vendors = {card.uuid: card.vendor for card in cards}
    resources: set[str] = set()
    for part in parts:
        for share, vendor, asked in _read(part, request, rules, vendors):
            if asked is None or asked.percentage or share.memory != asked.memory:
                resources.add(vendor.memory)
            if asked is None or share.cores != asked.cores:
                resources.add(vendor.cores)
    return resources - {""}


def _read(
    part: Part, request: PodDeviceRequest, rules: DemandRules, vendors: Mapping[str, str]
) -> Iterator[tuple[Share, Vendor, DeviceRequest | None]]:
    """Yield a container's shares, each with its vendor and the request for that vendor.

    A card that the node does not announce is assigned to the first requested vendor.
    """
    asked = {
        card.vendor: card
        for wanted in request.containers
        if wanted.container == part.container
        for card in wanted.cards
    }
    first = next(iter((*asked, *rules.by_name)), "")
    for share in part.shares:
        name = vendors.get(share.uuid, first)
        vendor = rules.by_name.get(name)
        if vendor is not None:
            yield share, vendor, asked.get(name)


def _typed(resources: set[str], request: PodDeviceRequest, rules: DemandRules) -> set[str]:
    """Return the resources, and their counterparts for the pod's card types."""
    return resources | {
        rules.typed[card_type][name] for card_type in request.types for name in resources
    }
