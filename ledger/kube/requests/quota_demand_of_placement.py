"""Stands: what a pod is charged once it is known on which cards it runs.

A percentage of a card, or a whole one, is held at the worst card that it could be, and an instance
of a card that is cut may be larger than what was asked for. What the cards decided stands above the
pod's spec from then on.
"""

from collections.abc import Iterable, Iterator, Mapping

from ledger.core.model.amounts import Amounts, largest, plus
from ledger.core.model.cards import Card, Part, Parts, Phase, Share
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_requests import DeviceRequest, PodDeviceRequest
from ledger.kube.vendors.vendors import Vendor


def placement_overrides(
    parts: Parts,
    wish: PodDeviceRequest,
    rules: DemandRules,
    cards: Iterable[Card],
    *,
    initialised: bool = False,
) -> Amounts:
    """Return the amounts, by resource, that the cards decided; empty when all was known before.

    `cards` are those of the node: they say whose they are. With `initialised` the init containers
    are over and count no more.
    """
    cards = tuple(cards)
    decided = _decided(parts, wish, rules, cards)
    if not decided:
        return {}
    found = demand_of_placement(parts, wish, rules, cards, initialised=initialised)
    return {name: found.get(name, 0) for name in sorted(_typed(decided, wish, rules))}


def demand_of_placement(
    parts: Parts,
    wish: PodDeviceRequest,
    rules: DemandRules,
    cards: Iterable[Card],
    *,
    initialised: bool = False,
) -> Amounts:
    """Return all that parts amount to, by resource, as `demand_of` would if they were its spec.

    After a resize this is what stands, since it is no more what the spec says.
    """
    vendors = {card.uuid: card.vendor for card in cards}
    running: Amounts = {}
    peak: Amounts = {}
    for part in parts:
        if part.phase == Phase.INIT and initialised:
            continue
        beside = plus(running, _taken(part, wish, rules, vendors))
        if part.phase != Phase.INIT:
            running = beside
        peak = largest(peak, beside)
    return peak | {
        typed: peak[resource]
        for resource in peak
        for typed in _typed({resource}, wish, rules)
        if typed != resource
    }


def _taken(
    part: Part, wish: PodDeviceRequest, rules: DemandRules, vendors: Mapping[str, str]
) -> Amounts:
    """Return what one container takes, by resource."""
    found: Amounts = {}
    for share, vendor, _ in _read(part, wish, rules, vendors):
        amounts = (vendor.count, 1), (vendor.memory, share.memory), (vendor.cores, share.cores)
        found = plus(found, {name: amount for name, amount in amounts if name})
    return found


def _decided(
    parts: Parts, wish: PodDeviceRequest, rules: DemandRules, cards: Iterable[Card]
) -> set[str]:
    """Return the resources of which the cards decided how much it is."""
    vendors = {card.uuid: card.vendor for card in cards}
    found: set[str] = set()
    for part in parts:
        for share, vendor, asked in _read(part, wish, rules, vendors):
            if asked is None or asked.percentage or share.memory != asked.memory:
                found.add(vendor.memory)
            if asked is None or share.cores != asked.cores:
                found.add(vendor.cores)
    return found - {""}


def _read(
    part: Part, wish: PodDeviceRequest, rules: DemandRules, vendors: Mapping[str, str]
) -> Iterator[tuple[Share, Vendor, DeviceRequest | None]]:
    """Yield a container's shares, whose cards they are, and what was asked of that vendor.

    A card that the node does not announce is taken for one of the vendor that was asked first.
    """
    asked = {one.vendor: one for one in wish.of(part.container)}
    first = next(iter((*asked, *rules.by_name)), "")
    for share in part.shares:
        name = vendors.get(share.uuid, first)
        vendor = rules.by_name.get(name)
        if vendor is not None:
            yield share, vendor, asked.get(name)


def _typed(resources: set[str], wish: PodDeviceRequest, rules: DemandRules) -> set[str]:
    """Return the resources, and those that only cards of the pod's types are."""
    return resources | {rules.typed[one][name] for one in wish.types for name in resources}
