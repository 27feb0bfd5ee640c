"""Card offers: the fit oracle's rules for one card, whether it fits, its amounts and its score.

They are written from the rules, not from `extender`, and share only the types of the question.
"""

from dataclasses import dataclass, field

from ledger.core.model.cards import Parts, Profile
from ledger.kube.requests.device_requests import DeviceRequest, Weights


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
class Offer:
    """One card that fits: what would be taken of it."""

    card: OneCard
    memory: int
    cores: int
    instance: tuple[str, int, int] | None = None


def offer_of(
    node: OneNode,
    card: OneCard,
    request: DeviceRequest,
    terms: Terms,
    taken: int,
    picked: set[str],
    numa: int | None,
) -> Offer | str:
    """Return the amounts that would be taken of a card, or why it cannot be."""
    if card.uuid in picked:
        return "AllocatedCardsInsufficientRequest"
    memory, cores = request.memory, request.cores
    if request.percentage:
        memory = card.memory * request.percentage // 100
    instance = None
    if card.mode == "mig" and card.profiles:
        instance = _instance(card, request, memory, cores)
    if instance is not None:
        profile, start, size = instance
        memory, cores = profile.memory, profile.cores
    reason = _broken_rule(card, request, terms, taken, memory, cores)
    if reason:
        return reason
    if card.mode == "mig" and instance is None:
        return "CardMigTopologyInfeasible"
    if numa is not None and card.numa != numa:
        return "NumaNotFit"
    if instance is None:
        return Offer(card, memory, cores)
    return Offer(card, memory, cores, (profile.name, start, size))


def _instance(
    card: OneCard, request: DeviceRequest, memory: int, cores: int
) -> tuple[Profile, int, int] | None:
    if request.percentage == 100:
        memory = min(memory, max(profile.memory for profile in card.profiles))
    if request.exclusive:
        cores = min(cores, max(profile.cores for profile in card.profiles))
    for profile in sorted(
        card.profiles, key=lambda profile: (profile.memory, profile.slices, profile.name)
    ):
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


def _broken_rule(
    card: OneCard, request: DeviceRequest, terms: Terms, taken: int, memory: int, cores: int
) -> str:
    """Return the first rule that is broken."""
    choice, model = request.choice, card.type.lower()
    mutex = "mutex" in terms.card_policies
    rules = [
        ("CardNotHealthy", not card.healthy),
        ("CardCordoned", card.cordoned),
        ("CardTypeMismatch", card.vendor != request.vendor),
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
        ("ExclusiveDeviceAllocateConflict", request.exclusive and card.used_slots > 0),
        (
            "CardComputeUnitsExhausted",
            cores == 0 and card.cores > 0 and card.used_cores >= card.cores,
        ),
        ("ExclusiveDeviceAllocateConflict", card.alone > 0),
    ]
    return next((reason for reason, broken in rules if broken), "")


def preferences(
    offers: list[Offer], offer: Offer, count: int, node: OneNode, terms: Terms, ours: set[str]
) -> list[float]:
    """Return how good a card is, the most important first, lower is better."""
    costs: list[float] = [float(offer.card.uuid not in ours)] if ours is not None else []
    words = list(terms.card_policies)
    if words not in ([], ["mutex"]) and not {"binpack", "spread", "whole"} & set(words):
        words.append("spread")
    for word in words:
        if word == "binpack":
            costs.append(-_full(offer, terms.weights))
        elif word == "spread":
            costs.append(_full(offer, terms.weights))
        elif word == "whole":
            costs.append(float(offer.card.used_slots == 0))
            costs.append(float(offer.card.memory - offer.card.used_memory - offer.memory))
        elif word == "numa":
            there = sum(other.card.numa == offer.card.numa for other in offers)
            costs.append(offer.card.numa + (0.0 if there >= count else 1_048_576.0))
        elif word == "topology-aware":
            links = [pair(node, offer.card, other.card) for other in offers]
            costs.append(float(sum(links)) if count == 1 else 0.0)
    return costs


def _full(offer: Offer, weights: Weights) -> float:
    card = offer.card
    return (
        weights.slots * used_share(card.used_slots + 1, card.slots)
        + weights.cores * used_share(card.used_cores + offer.cores, card.cores)
        + weights.memory * used_share(card.used_memory + offer.memory, card.memory)
    )


def used_share(used: int, limit: int) -> float:
    return used / limit if limit > 0 else 0.0


def pair(node: OneNode, card: OneCard, other: OneCard) -> int:
    return node.pairs.get((card.uuid, other.uuid), 0)
