"""HAMi oracle: the first rule of HAMi that a card breaks, for containers on NVIDIA's cards.

It is written from the behaviour of HAMi, not from `extender`. The words are those of gpuledger, and
so is the rule for cards with scaled cores (docs/reference/hami-differences.md).
"""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from typing import Final, NamedTuple

from support.oracles.card_offers import OneCard

from ledger.kube.requests.device_requests import DeviceRequest


class Asked(NamedTuple):
    """A container's request for each card, and the MiB that quotas leave; -1 is unbounded."""

    request: DeviceRequest
    mutex: bool = False
    room: int = -1

    def memory_of(self, card: OneCard) -> int:
        """Return the MiB that are asked of a card."""
        return self.request.memory or card.memory * self.request.percentage // 100


Rule = tuple[str, Callable[[OneCard, Asked], bool]]
"""The reason, and whether a card breaks the rule."""


def _other_kind(card: OneCard, asked: Asked) -> bool:
    choice, model = asked.request.choice, card.type.lower()
    used = [word.lower() in model for word in choice.use_types]
    return (
        (bool(used) and not any(used))
        or any(word.lower() in model for word in choice.nouse_types)
        or (bool(choice.mode and card.mode) and card.mode not in choice.mode)
    )


def _other_uuid(card: OneCard, asked: Asked) -> bool:
    choice = asked.request.choice
    left_out = bool(choice.use_uuids) and card.uuid not in choice.use_uuids
    return left_out or card.uuid in choice.nouse_uuids


def _no_room(card: OneCard, asked: Asked) -> bool:
    return 0 <= asked.room < asked.memory_of(card)


def _shared(card: OneCard, asked: Asked) -> bool:
    return asked.request.cores == 100 and card.used_slots > 0


def _spent(card: OneCard, asked: Asked) -> bool:
    return card.cores != 0 and card.used_cores == card.cores and not asked.request.cores


RULES: Final[tuple[Rule, ...]] = (
    ("CardNotHealthy", lambda card, _: not card.healthy),
    ("CardCordoned", lambda card, _: card.cordoned),
    ("CardTypeMismatch", _other_kind),
    ("CardUuidMismatch", _other_uuid),
    ("CardTimeSlicingExhausted", lambda card, _: card.slots <= card.used_slots),
    ("ExclusiveDeviceAllocateConflict", lambda card, asked: asked.mutex and card.used_slots > 0),
    ("ResourceQuotaNotFit", _no_room),
    (
        "CardInsufficientMemory",
        lambda card, asked: card.memory - card.used_memory < asked.memory_of(card),
    ),
    (
        "CardInsufficientCore",
        lambda card, asked: card.cores - card.used_cores < asked.request.cores,
    ),
    ("ExclusiveDeviceAllocateConflict", _shared),
    ("CardComputeUnitsExhausted", _spent),
)


def reasons(
    cards: list[OneCard], asked: Asked, rules: tuple[Rule, ...] = RULES
) -> Counter[str] | None:
    """Return the number of cards by reason, None where the container fits."""
    if asked.request.count > len(cards):
        return Counter({"NodeInsufficientDevice": 0})
    first = [next((word for word, broken in rules if broken(card, asked)), "") for card in cards]
    good = first.count("")
    if good >= asked.request.count:
        return None
    counts = Counter(word for word in first if word)
    return counts + Counter({"AllocatedCardsInsufficientRequest": good})


def fits_quota(cards: list[OneCard], init: list[Asked], apps: list[Asked]) -> bool:
    """Return whether a node bears a pod.

    Each init container is fitted as if it were alone there, and the app containers one after the
    other, each on the emptiest cards that fit.
    """
    if not all(_taken(deepcopy(cards), container) for container in init):
        return False
    shared = deepcopy(cards)
    return all(_taken(shared, container) for container in apps)


def _taken(cards: list[OneCard], asked: Asked) -> bool:
    """Give a container its cards; return whether there were enough."""
    good = [card for card in cards if not any(broken(card, asked) for _, broken in RULES)]
    good.sort(key=lambda card: (_fullness(card, asked), card.index))
    for card in good[: asked.request.count]:
        card.used_slots += 1
        card.used_cores += asked.request.cores
        card.used_memory += asked.memory_of(card)
    return len(good) >= asked.request.count


def _fullness(card: OneCard, asked: Asked) -> float:
    """Return the sum of the shares of a card that would be in use."""
    parts = (
        (1 + card.used_slots, card.slots),
        (card.used_cores + asked.request.cores, card.cores),
        (card.used_memory + asked.memory_of(card), card.memory),
    )
    return sum(used / limit for used, limit in parts if limit)
