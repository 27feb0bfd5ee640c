"""A second opinion on fitting: one node at a time, card by card, in plain loops.

Written from the rules, not from `extender`: it shares only the types of the question.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import combinations

from ledger.core.model.cards import Part, Parts, Phase, Profile, Share
from ledger.kube.requests.device_requests import DeviceRequest, PodDeviceRequest, Weights


@dataclass
class OneCard:
    """A card and what others use of it; `taken` are the slices of instances."""

    uuid: str
    index: int = 0
    type: str = "NVIDIA A10"
    vendor: str = "nvidia"
    mode: str = "hami-core"
    numa: int = 0
    memory: int = 24_576
    cores: int = 100
    slots: int = 10
    healthy: bool = True
    cordoned: bool = False
    profiles: tuple[Profile, ...] = ()
    used_memory: int = 0
    used_cores: int = 0
    used_slots: int = 0
    alone: int = 0
    taken: set[int] = field(default_factory=set)


@dataclass
class OneNode:
    """A node; its cards in the order of index and uuid, and how well two are linked."""

    cards: list[OneCard]
    pairs: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass
class Terms:
    """How the pod wants its cards and nodes."""

    node_policy: str = "binpack"
    card_policies: tuple[str, ...] = ("spread",)
    weights: Weights = field(default_factory=Weights)
    room: int = -1


@dataclass
class Answer:
    """Whether a pod fits, on what, how good that is; or why not."""

    parts: Parts | None = None
    score: float = 0.0
    reason: str = ""
    resolvable: bool = False


class Refused(Exception):
    """The pod does not fit."""


@dataclass
class _Offer:
    """One card that fits: what would be taken of it."""

    card: OneCard
    memory: int
    cores: int
    instance: tuple[str, int, int] | None = None


def answer(node: OneNode, wish: PodDeviceRequest, terms: Terms) -> Answer:
    """Answer for one node."""
    try:
        parts, after = _pod(deepcopy(node), wish, terms)
    except Refused as refused:
        found = Answer(reason=str(refused))
        if found.reason not in ("NodeUnregistered", "NodeInsufficientDevice"):
            found.resolvable = _fits_alone(node, wish, terms)
        return found
    return Answer(parts, _score(node, after, terms.node_policy))


def _fits_alone(node: OneNode, wish: PodDeviceRequest, terms: Terms) -> bool:
    empty = deepcopy(node)
    policies = ("mutex",) if "mutex" in terms.card_policies else ()
    terms = Terms(terms.node_policy, policies, terms.weights, terms.room)
    for card in empty.cards:
        card.used_memory = card.used_cores = card.used_slots = card.alone = 0
        card.taken = set()
    try:
        _pod(empty, wish, terms)
    except Refused:
        return False
    return True


def _pod(node: OneNode, wish: PodDeviceRequest, terms: Terms) -> tuple[Parts, OneNode]:
    """Give a pod its cards; return them, and the node as it is where most runs at once."""
    if not node.cards:
        raise Refused("NodeUnregistered")
    given: dict[int, tuple[Share, ...]] = {}
    before = deepcopy(node)
    initial = []
    taken = 0
    for place, one in enumerate(wish.wishes):
        if one.phase == Phase.INIT and one.cards:
            initial.append((place, deepcopy(node), taken))
        elif one.cards:
            shares = _container(node, one.cards, wish.numa_bind, terms, taken, set())
            taken += sum(share.memory for share in shares)
            given[place] = shares
    peak = deepcopy(node)
    for place, beside, theirs in initial:
        ours = {
            card.uuid
            for card, was in zip(peak.cards, before.cards, strict=True)
            if card.used_slots > was.used_slots
        }
        cards = wish.wishes[place].cards
        given[place] = _container(beside, cards, wish.numa_bind, terms, theirs, ours)
        for card, other in zip(peak.cards, beside.cards, strict=True):
            card.used_memory = max(card.used_memory, other.used_memory)
            card.used_cores = max(card.used_cores, other.used_cores)
            card.used_slots = max(card.used_slots, other.used_slots)
    parts = tuple(
        Part(one.container, one.phase, given.get(place, ()))
        for place, one in enumerate(wish.wishes)
    )
    return parts, peak


def _container(
    node: OneNode,
    wishes: tuple[DeviceRequest, ...],
    bind: bool,
    terms: Terms,
    taken: int,
    ours: set[str],
) -> tuple[Share, ...]:
    """Give a container its cards, and put it on them."""
    anywhere = deepcopy(node)
    if not bind:
        shares, _ = _everything(anywhere, wishes, terms, taken, ours, None)
        node.cards[:] = anywhere.cards
        return shares
    best = None
    for numa in sorted({card.numa for card in node.cards}):
        attempt = deepcopy(node)
        try:
            shares, cost = _everything(attempt, wishes, terms, taken, ours, numa)
        except Refused:
            continue
        if best is None or cost < best[0]:
            best = cost, shares, attempt
    if best is None:
        _everything(anywhere, wishes, terms, taken, ours, None)
        reasons = [_offer(node, card, wishes[0], terms, taken, set(), None) for card in node.cards]
        raise Refused(
            _counted(["NumaNotFit" if isinstance(one, _Offer) else one for one in reasons])
        )
    node.cards[:] = best[2].cards
    return best[1]


def _everything(
    node: OneNode,
    wishes: tuple[DeviceRequest, ...],
    terms: Terms,
    taken: int,
    ours: set[str],
    numa: int | None,
) -> tuple[tuple[Share, ...], list[float]]:
    shares: list[Share] = []
    cost: list[float] = []
    for wish in wishes:
        same = [card for card in node.cards if card.vendor == wish.vendor]
        if sum(card.slots if card.mode == "mig" else 1 for card in same) < wish.count:
            raise Refused("NodeInsufficientDevice")
        more, keys = _cards(node, wish, terms, taken, ours, numa)
        shares += more
        taken += sum(share.memory for share in more)
        cost = [one + other for one, other in zip(cost, keys, strict=True)] if cost else keys
    return tuple(shares), cost


def _cards(
    node: OneNode,
    wish: DeviceRequest,
    terms: Terms,
    taken: int,
    ours: set[str],
    numa: int | None,
) -> tuple[list[Share], list[float]]:
    """Give a container the cards of one vendor."""
    shares: list[Share] = []
    picked: set[str] = set()
    total: list[float] = []
    offers = _offers(node, wish, terms, taken, picked, numa)
    plan = _planned(node, offers, wish, terms, taken, ours)
    first = offers
    for number in range(wish.count):
        offers = _offers(node, wish, terms, taken, picked, numa)
        if not offers:
            found = [_offer(node, card, wish, terms, taken, picked, numa) for card in node.cards]
            raise Refused(_counted([str(one) for one in found]))
        keys = {one.card.uuid: _keys(first, one, wish.count, node, terms, ours) for one in offers}
        best = min(offers, key=lambda one: (keys[one.card.uuid], node.cards.index(one.card)))
        if plan:
            best = next(one for one in offers if one.card.uuid == plan[number])
        cost = keys[best.card.uuid]
        total = [one + other for one, other in zip(total, cost, strict=True)] if total else cost
        shares.append(_put(best, wish))
        taken += best.memory
        if best.card.mode != "mig":
            picked.add(best.card.uuid)
    return shares, total


def _put(offer: _Offer, wish: DeviceRequest) -> Share:
    card = offer.card
    card.used_memory += offer.memory
    card.used_cores += offer.cores
    card.used_slots += 1
    card.alone += wish.exclusive
    name, start, size = offer.instance or ("", 0, 0)
    card.taken |= set(range(start, start + size))
    return Share(card.uuid, offer.memory, offer.cores, wish.exclusive, name, start, size)


def _offers(
    node: OneNode, wish: DeviceRequest, terms: Terms, taken: int, picked: set[str], numa: int | None
) -> list[_Offer]:
    found = [_offer(node, card, wish, terms, taken, picked, numa) for card in node.cards]
    return [one for one in found if isinstance(one, _Offer)]


def _offer(
    node: OneNode,
    card: OneCard,
    wish: DeviceRequest,
    terms: Terms,
    taken: int,
    picked: set[str],
    numa: int | None,
) -> _Offer | str:
    """Return what would be taken of a card, or why it cannot be."""
    if card.uuid in picked:
        return "AllocatedCardsInsufficientRequest"
    memory, cores = wish.memory, wish.cores
    if wish.percentage:
        memory = card.memory * wish.percentage // 100
    instance = None
    if card.mode == "mig" and card.profiles:
        instance = _instance(card, wish, memory, cores)
    if instance is not None:
        profile, start, size = instance
        memory, cores = profile.memory, profile.cores
    reason = _broken(card, wish, terms, taken, memory, cores)
    if reason:
        return reason
    if card.mode == "mig" and instance is None:
        return "CardMigTopologyInfeasible"
    if numa is not None and card.numa != numa:
        return "NumaNotFit"
    if instance is None:
        return _Offer(card, memory, cores)
    return _Offer(card, memory, cores, (profile.name, start, size))


def _instance(
    card: OneCard, wish: DeviceRequest, memory: int, cores: int
) -> tuple[Profile, int, int] | None:
    if wish.percentage == 100:
        memory = min(memory, max(profile.memory for profile in card.profiles))
    if wish.exclusive:
        cores = min(cores, max(profile.cores for profile in card.profiles))
    for profile in sorted(card.profiles, key=lambda one: (one.memory, one.slices, one.name)):
        if profile.memory >= memory and profile.cores >= cores:
            places = [place for place in profile.placements if not card.taken & _slices(place)]
            if places:
                start, size = min(places, key=lambda place: _harm(card, place))
                return profile, start, size
    return None


def _slices(place: tuple[int, int]) -> set[int]:
    return set(range(place[0], sum(place)))


def _harm(card: OneCard, place: tuple[int, int]) -> tuple[int, int]:
    """Return how many instances would not be possible any more, and where this one lies."""
    start, size = place
    after = card.taken | _slices(place)
    left = sum(
        not after & _slices(other) for profile in card.profiles for other in profile.placements
    )
    return -left, -start if size == 1 else start


def _broken(
    card: OneCard, wish: DeviceRequest, terms: Terms, taken: int, memory: int, cores: int
) -> str:
    """Return the first rule that is broken."""
    choice, model = wish.choice, card.type.lower()
    mutex = "mutex" in terms.card_policies
    rules = [
        ("CardNotHealthy", not card.healthy),
        ("CardCordoned", card.cordoned),
        ("CardTypeMismatch", card.vendor != wish.vendor),
        ("CardTypeMismatch", any(word.lower() in model for word in choice.nouse_types)),
        (
            "CardTypeMismatch",
            bool(choice.use_types) and not any(word.lower() in model for word in choice.use_types),
        ),
        ("CardTypeMismatch", bool(choice.mode and card.mode) and card.mode not in choice.mode),
        ("CardUuidMismatch", bool(choice.use_uuids) and card.uuid not in choice.use_uuids),
        ("CardUuidMismatch", card.uuid in choice.nouse_uuids),
        ("CardTimeSlicingExhausted", card.used_slots >= card.slots),
        ("ExclusiveDeviceAllocateConflict", mutex and card.used_slots > 0),
        ("ResourceQuotaNotFit", terms.room >= 0 and taken + memory > terms.room),
        ("CardInsufficientMemory", card.used_memory + memory > card.memory),
        ("CardInsufficientCore", card.used_cores + cores > card.cores),
        ("ExclusiveDeviceAllocateConflict", wish.exclusive and card.used_slots > 0),
        (
            "CardComputeUnitsExhausted",
            cores == 0 and card.cores > 0 and card.used_cores >= card.cores,
        ),
        ("ExclusiveDeviceAllocateConflict", card.alone > 0),
    ]
    return next((reason for reason, broken in rules if broken), "")


def _keys(
    offers: list[_Offer], one: _Offer, count: int, node: OneNode, terms: Terms, ours: set[str]
) -> list[float]:
    """Return how good a card is, the most important first, lower is better."""
    found: list[float] = [float(one.card.uuid not in ours)] if ours is not None else []
    words = list(terms.card_policies)
    if words not in ([], ["mutex"]) and not {"binpack", "spread", "whole"} & set(words):
        words.append("spread")
    for word in words:
        if word == "binpack":
            found.append(-_full(one, terms.weights))
        elif word == "spread":
            found.append(_full(one, terms.weights))
        elif word == "whole":
            found.append(float(one.card.used_slots == 0))
            found.append(float(one.card.memory - one.card.used_memory - one.memory))
        elif word == "numa":
            there = sum(other.card.numa == one.card.numa for other in offers)
            found.append(one.card.numa + (0.0 if there >= count else 1_048_576.0))
        elif word == "topology-aware":
            links = [_pair(node, one.card, other.card) for other in offers]
            found.append(float(sum(links)) if count == 1 else 0.0)
    return found


def _full(one: _Offer, weights: Weights) -> float:
    card = one.card
    return (
        weights.slots * _part(card.used_slots + 1, card.slots)
        + weights.cores * _part(card.used_cores + one.cores, card.cores)
        + weights.memory * _part(card.used_memory + one.memory, card.memory)
    )


def _part(used: int, limit: int) -> float:
    return used / limit if limit > 0 else 0.0


def _pair(node: OneNode, one: OneCard, other: OneCard) -> int:
    return node.pairs.get((one.uuid, other.uuid), 0)


def _planned(
    node: OneNode,
    offers: list[_Offer],
    wish: DeviceRequest,
    terms: Terms,
    taken: int,
    ours: set[str],
) -> list[str]:
    """Return the best linked set of cards, nothing where links do not decide."""
    if "topology-aware" not in terms.card_policies or wish.count == 1:
        return []
    if not any(node.pairs.values()):
        return []
    offers = sorted(
        offers,
        key=lambda one: (
            _keys(offers, one, wish.count, node, terms, ours),
            node.cards.index(one.card),
        ),
    )
    best: tuple[float, list[str]] | None = None
    for some in combinations(offers, wish.count):
        if terms.room >= 0 and taken + sum(one.memory for one in some) > terms.room:
            continue
        links = sum(_pair(node, one.card, two.card) for one, two in combinations(some, 2))
        if best is None or links > best[0]:
            best = links, [one.card.uuid for one in some]
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
    counts.sort(key=lambda one: -one[0])
    return ", ".join(f"{count}/{len(reasons)} {reason}" for count, reason in counts)


def _score(before: OneNode, after: OneNode, policy: str) -> float:
    """Return how good a node is, higher is better."""
    cards = after.cards
    full = 10.0 * (
        _part(sum(c.used_slots for c in cards), sum(c.slots for c in cards))
        + _part(sum(c.used_cores for c in cards), sum(c.cores for c in cards))
        + _part(sum(c.used_memory for c in cards), sum(c.memory for c in cards))
    )
    if policy == "spread":
        return -full
    if policy == "whole":
        pairs = zip(before.cards, cards, strict=True)
        touched = sum(was.used_slots == 0 and now.used_slots > 0 for was, now in pairs)
        return full - 100.0 * touched
    return full
