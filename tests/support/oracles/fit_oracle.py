"""Fit oracle: an independent fit of a pod, one node at a time, card by card, in plain loops.

It is written from the rules, not from `extender`, and shares only the types of the question.
"""

from copy import deepcopy
from itertools import combinations

from support.oracles.card_offers import (
    Answer,
    Offer,
    OneNode,
    Refused,
    Terms,
    offer_of,
    pair,
    preferences,
    used_share,
)

from ledger.core.model.cards import Part, Parts, Phase, Share
from ledger.kube.requests.device_requests import DeviceRequest, PodDeviceRequest


def answer(node: OneNode, request: PodDeviceRequest, terms: Terms) -> Answer:
    """Answer for one node."""
    try:
        parts, after = _pod(deepcopy(node), request, terms)
    except Refused as refused:
        refusal = Answer(reason=str(refused))
        if refusal.reason not in ("NodeUnregistered", "NodeInsufficientDevice"):
            refusal.resolvable = _fits_alone(node, request, terms)
        return refusal
    return Answer(parts, _score(node, after, terms.node_policy))


def _fits_alone(node: OneNode, request: PodDeviceRequest, terms: Terms) -> bool:
    empty = deepcopy(node)
    policies = ("mutex",) if "mutex" in terms.card_policies else ()
    terms = Terms(terms.node_policy, policies, terms.weights, terms.room)
    for card in empty.cards:
        card.used_memory = card.used_cores = card.used_slots = card.alone = 0
        card.taken = set()
    try:
        _pod(empty, request, terms)
    except Refused:
        return False
    return True


def _pod(node: OneNode, request: PodDeviceRequest, terms: Terms) -> tuple[Parts, OneNode]:
    """Give a pod its cards; return them, and the node as it is where most runs at once."""
    if not node.cards:
        raise Refused("NodeUnregistered")
    given: dict[int, tuple[Share, ...]] = {}
    before = deepcopy(node)
    initial = []
    taken = 0
    for place, container in enumerate(request.containers):
        if container.phase == Phase.INIT and container.cards:
            initial.append((place, deepcopy(node), taken))
        elif container.cards:
            shares = _container(node, container.cards, request.numa_bind, terms, taken, set())
            taken += sum(share.memory for share in shares)
            given[place] = shares
    peak = deepcopy(node)
    for place, beside, theirs in initial:
        ours = {
            card.uuid
            for card, was in zip(peak.cards, before.cards, strict=True)
            if card.used_slots > was.used_slots
        }
        cards = request.containers[place].cards
        given[place] = _container(beside, cards, request.numa_bind, terms, theirs, ours)
        for card, other in zip(peak.cards, beside.cards, strict=True):
            card.used_memory = max(card.used_memory, other.used_memory)
            card.used_cores = max(card.used_cores, other.used_cores)
            card.used_slots = max(card.used_slots, other.used_slots)
    parts = tuple(
        Part(container.container, container.phase, given.get(place, ()))
        for place, container in enumerate(request.containers)
    )
    return parts, peak


def _container(
    node: OneNode,
    requests: tuple[DeviceRequest, ...],
    bind: bool,
    terms: Terms,
    taken: int,
    ours: set[str],
) -> tuple[Share, ...]:
    """Give a container its cards, and put it on them."""
    anywhere = deepcopy(node)
    if not bind:
        shares, _ = _everything(anywhere, requests, terms, taken, ours, None)
        node.cards[:] = anywhere.cards
        return shares
    best = None
    for numa in sorted({card.numa for card in node.cards}):
        attempt = deepcopy(node)
        try:
            shares, cost = _everything(attempt, requests, terms, taken, ours, numa)
        except Refused:
            continue
        if best is None or cost < best[0]:
            best = cost, shares, attempt
    if best is None:
        _everything(anywhere, requests, terms, taken, ours, None)
        reasons = [
            offer_of(node, card, requests[0], terms, taken, set(), None) for card in node.cards
        ]
        raise Refused(
            _counted(["NumaNotFit" if isinstance(reason, Offer) else reason for reason in reasons])
        )
    node.cards[:] = best[2].cards
    return best[1]


def _everything(
    node: OneNode,
    requests: tuple[DeviceRequest, ...],
    terms: Terms,
    taken: int,
    ours: set[str],
    numa: int | None,
) -> tuple[tuple[Share, ...], list[float]]:
    shares: list[Share] = []
    cost: list[float] = []
    for request in requests:
        same = [card for card in node.cards if card.vendor == request.vendor]
        if sum(card.slots if card.mode == "mig" else 1 for card in same) < request.count:
            raise Refused("NodeInsufficientDevice")
        more, keys = _cards(node, request, terms, taken, ours, numa)
        shares += more
        taken += sum(share.memory for share in more)
        cost = [value + other for value, other in zip(cost, keys, strict=True)] if cost else keys
    return tuple(shares), cost


def _cards(
    node: OneNode,
    request: DeviceRequest,
    terms: Terms,
    taken: int,
    ours: set[str],
    numa: int | None,
) -> tuple[list[Share], list[float]]:
    """Give a container the cards of one vendor."""
    shares: list[Share] = []
    picked: set[str] = set()
    total: list[float] = []
    offers = _offers(node, request, terms, taken, picked, numa)
    plan = _planned(node, offers, request, terms, taken, ours)
    first = offers
    for number in range(request.count):
        offers = _offers(node, request, terms, taken, picked, numa)
        if not offers:
            reasons = [
                offer_of(node, card, request, terms, taken, picked, numa) for card in node.cards
            ]
            raise Refused(_counted([str(reason) for reason in reasons]))
        keys = {
            offer.card.uuid: preferences(first, offer, request.count, node, terms, ours)
            for offer in offers
        }
        best = min(offers, key=lambda offer: (keys[offer.card.uuid], node.cards.index(offer.card)))
        if plan:
            best = next(offer for offer in offers if offer.card.uuid == plan[number])
        cost = keys[best.card.uuid]
        total = [value + other for value, other in zip(total, cost, strict=True)] if total else cost
        shares.append(_put(best, request))
        taken += best.memory
        if best.card.mode != "mig":
            picked.add(best.card.uuid)
    return shares, total


def _put(offer: Offer, request: DeviceRequest) -> Share:
    card = offer.card
    card.used_memory += offer.memory
    card.used_cores += offer.cores
    card.used_slots += 1
    card.alone += request.exclusive
    name, start, size = offer.instance or ("", 0, 0)
    card.taken |= set(range(start, start + size))
    return Share(card.uuid, offer.memory, offer.cores, request.exclusive, name, start, size)


def _offers(
    node: OneNode,
    request: DeviceRequest,
    terms: Terms,
    taken: int,
    picked: set[str],
    numa: int | None,
) -> list[Offer]:
    offered = [offer_of(node, card, request, terms, taken, picked, numa) for card in node.cards]
    return [offer for offer in offered if isinstance(offer, Offer)]


def _planned(
    node: OneNode,
    offers: list[Offer],
    request: DeviceRequest,
    terms: Terms,
    taken: int,
    ours: set[str],
) -> list[str]:
    """Return the best linked set of cards, nothing where links do not decide."""
    if "topology-aware" not in terms.card_policies or request.count == 1:
        return []
    if not any(node.pairs.values()):
        return []
    offers = sorted(
        offers,
        key=lambda offer: (
            preferences(offers, offer, request.count, node, terms, ours),
            node.cards.index(offer.card),
        ),
    )
    best: tuple[float, list[str]] | None = None
    for some in combinations(offers, request.count):
        if terms.room >= 0 and taken + sum(offer.memory for offer in some) > terms.room:
            continue
        links = sum(pair(node, offer.card, two.card) for offer, two in combinations(some, 2))
        if best is None or links > best[0]:
            best = links, [offer.card.uuid for offer in some]
    return best[1] if best is not None else []


def _counted(reasons: list[str]) -> str:
    order = [
        "CardNotHealthy",
        "CardCordoned",
        "CardTypeMismatch",
        "NumaNotFit",
        "CardUuidMismatch",
        "CardTimeSlicingExhausted",
        "ExclusiveDeviceAllocateConflict",
        "ResourceQuotaNotFit",
        "CardInsufficientMemory",
        "CardInsufficientCore",
        "CardComputeUnitsExhausted",
        "CardMigTopologyInfeasible",
        "AllocatedCardsInsufficientRequest",
    ]
    counts = [(reasons.count(reason), reason) for reason in order if reason in reasons]
    counts.sort(key=lambda item: -item[0])
    return ", ".join(f"{count}/{len(reasons)} {reason}" for count, reason in counts)


def _score(before: OneNode, after: OneNode, policy: str) -> float:
    """Return how good a node is, higher is better."""
    cards = after.cards
    full = 10.0 * (
        used_share(sum(c.used_slots for c in cards), sum(c.slots for c in cards))
        + used_share(sum(c.used_cores for c in cards), sum(c.cores for c in cards))
        + used_share(sum(c.used_memory for c in cards), sum(c.memory for c in cards))
    )
    if policy == "spread":
        return -full
    if policy == "whole":
        pairs = zip(before.cards, cards, strict=True)
        touched = sum(was.used_slots == 0 and now.used_slots > 0 for was, now in pairs)
        return full - 100.0 * touched
    return full
