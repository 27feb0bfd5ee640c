"""Fit cases: random nodes, pods and preferences, so small that nodes are often just full."""

from dataclasses import dataclass
from random import Random

from support.oracles.card_offers import OneCard, OneNode, Terms

from ledger.core.model.cards import Phase, Profile
from ledger.kube.requests.device_requests import (
    ANY,
    CARD_POLICIES,
    ContainerDeviceRequests,
    DeviceRequest,
    DeviceSelector,
    PodDeviceRequest,
    Weights,
)

SMALL = Profile("1g.10gb", 9_856, 14, 1, tuple((start, 1) for start in range(7)))
MIDDLE = Profile("2g.20gb", 19_968, 28, 2, ((0, 2), (2, 2), (4, 2)))
LARGE = Profile("7g.80gb", 81_152, 100, 8, ((0, 8),))
TYPES = ("NVIDIA A10", "NVIDIA A100-SXM4-80GB", "Z100")
WEIGHTS = (Weights(), Weights(), Weights(1, 1, 3), Weights(0, 0, 1), Weights(5, 0, 0))


@dataclass(frozen=True)
class Case:
    """A question and the nodes that it is about."""

    nodes: list[OneNode]
    request: PodDeviceRequest
    terms: Terms


def case(seed: int) -> Case:
    """Return the case of a seed."""
    random = Random(seed)
    nodes = [_node(random) for _ in range(random.randint(1, 6))]
    return Case(nodes, _device_request(random), _terms(random))


def _node(random: Random) -> OneNode:
    plain = random.random() < 0.5
    cards = [
        _card(random, place, plain)
        for place in range(random.choice([0, *range(1, 8), *range(3, 8)]))
    ]
    pairs: dict[tuple[str, str], int] = {}
    for card in cards:
        for other in cards:
            if card.uuid < other.uuid:
                score = random.choice([0, 10, 60, 200])
                pairs[card.uuid, other.uuid] = pairs[other.uuid, card.uuid] = score
    return OneNode(cards, pairs if random.random() < 0.6 else {})


def _card(random: Random, place: int, plain: bool) -> OneCard:
    card = OneCard(
        uuid=f"GPU-{place}",
        index=place // 2,
        type=random.choice(TYPES[:2]),
        numa=random.randint(0, 2),
        memory=random.choice([24_576, 81_920]),
        slots=random.choice([2, 10, 10]),
    )
    if not plain:
        card.type = random.choice(TYPES)
        card.vendor = random.choice(["nvidia"] * 4 + ["hygon"])
        card.mode = random.choice(["hami-core", "", "mig"])
        card.cores = random.choice([100, 100, 150, 0])
        card.healthy = random.random() < 0.9
        card.cordoned = random.random() < 0.1
    if card.mode == "mig":
        card.profiles = random.choice([(), (SMALL, LARGE), (MIDDLE, SMALL), (SMALL,), (LARGE,)])
    if random.random() < 0.6:
        _use(random, card)
    return card


def _use(random: Random, card: OneCard) -> None:
    card.used_slots = random.randint(1, 1 + card.slots // 2)
    card.used_memory = random.randint(0, 6) * card.memory // 8
    card.used_cores = random.randint(0, 4) * card.cores // 4
    card.alone = int(random.random() < 0.2)
    if card.mode == "mig":
        card.taken = set(random.sample(range(8), random.randint(0, 3)))


def _device_request(random: Random) -> PodDeviceRequest:
    phases = [random.choice(list(Phase)) for _ in range(random.choice([1, 1, 1, 2, 3, 4]))]
    phases.sort(key=lambda phase: phase == Phase.APP)
    requests = tuple(
        ContainerDeviceRequests(
            f"c{place}", phase, tuple(_card_wish(random) for _ in range(_few(random)))
        )
        for place, phase in enumerate(phases)
    )
    return PodDeviceRequest(requests, numa_bind=random.random() < 0.3)


def _few(random: Random) -> int:
    return random.choice([0, 1, 1, 1, 1, 1, 2])


def _card_wish(random: Random) -> DeviceRequest:
    exclusive, percentage = random.random() < 0.15, random.choice([0, 0, 50, 100, 33])
    return DeviceRequest(
        vendor=random.choice(["nvidia"] * 9 + ["hygon"]),
        count=random.choice([1, 1, 1, 2, 2, 3]),
        memory=0 if percentage else random.choice([0, 1_000, 8_000, 12_000, 30_000]),
        percentage=percentage,
        cores=100 if exclusive else random.choice([0, 0, 10, 50]),
        exclusive=exclusive,
        choice=_choice(random) if random.random() < 0.3 else ANY,
    )


def _choice(random: Random) -> DeviceSelector:
    return DeviceSelector(
        use_types=random.choice([(), (), ("a10",), ("A100", "z1")]),
        nouse_types=random.choice([(), (), ("z100",)]),
        use_uuids=random.choice([(), (), ("GPU-0", "GPU-2", "GPU-3")]),
        nouse_uuids=random.choice([(), (), ("GPU-1",)]),
        mode=random.choice(["", "", "mig", "hami-core"]),
    )


def _terms(random: Random) -> Terms:
    return Terms(
        random.choice(["binpack", "spread", "whole"]),
        tuple(random.sample(CARD_POLICIES, random.choice([1, 1, 2, 3]))),
        random.choice(WEIGHTS),
        random.choice([-1] * 6 + [0, 12_000, 40_000, 100_000]),
    )
