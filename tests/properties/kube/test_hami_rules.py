"""Random cards are refused for the reason that HAMi gives, and fit where they fit with HAMi."""

from collections import Counter
from copy import deepcopy
from functools import cache
from random import Random

import pytest
from msgspec import structs
from support.harness.fit_harness import answers
from support.oracles import hami_oracle
from support.oracles.card_offers import OneCard, OneNode, Terms
from support.oracles.hami_oracle import RULES, Asked, Rule

from ledger.core.model.cards import Phase
from ledger.kube.requests.device_requests import (
    ANY,
    ContainerDeviceRequests,
    DeviceRequest,
    DeviceSelector,
    PodDeviceRequest,
    Weights,
)

SEEDS = 1_500
TYPES = ("NVIDIA A10", "NVIDIA A100-SXM4-80GB", "NVIDIA-Tesla T4")


def card(random: Random, number: int) -> OneCard:
    """Return a card that others may use in part."""
    cores = random.choice([100, 100, 100, 150, 0])
    drawn = OneCard(
        f"GPU-{number}",
        number,
        type=random.choice(TYPES),
        mode=random.choice(["hami-core", "hami-core", ""]),
        memory=random.choice([16_000, 24_576, 10_001]),
        cores=cores,
        slots=random.choice([1, 2, 10]),
        healthy=random.random() < 0.9,
        cordoned=random.random() < 0.1,
    )
    if random.random() < 0.6:
        drawn.used_slots = random.randint(1, drawn.slots)
        drawn.used_memory = random.randint(0, 4) * drawn.memory // 4
        drawn.used_cores = random.randint(0, 4) * cores // 4
    return drawn


def asked(random: Random) -> Asked:
    """Return the request of a container."""
    percentage, cores = random.choice([0, 0, 50, 100, 33]), random.choice([0, 0, 10, 50, 100])
    choice = DeviceSelector(
        use_types=random.choice([(), (), ("a10",), ("A100", "t4")]),
        nouse_types=random.choice([(), (), ("t4",)]),
        use_uuids=random.choice([(), (), ("GPU-0", "GPU-2")]),
        nouse_uuids=random.choice([(), (), ("GPU-1",)]),
        mode=random.choice(["", "", "hami-core", "mig"]),
    )
    count = random.choice([1, 1, 2, 3])
    memory = 0 if percentage else random.choice([1_000, 8_000, 12_000])
    request = DeviceRequest("nvidia", count, memory, percentage, cores, cores == 100, choice)
    room = random.choice([-1, -1, 5_000, 9_000]) if count == 1 else -1
    return Asked(request, random.random() < 0.2, room)


def small_card(random: Random, number: int) -> OneCard:
    """Return a card that every container accepts, and that others may use in part."""
    cores = random.choice([0, 0, 25, 50, 75])
    memory = random.choice([16_000, 24_576])
    used = (random.randint(1, 2), random.randint(0, 3) * memory // 4) if cores else (0, 0)
    return OneCard(
        f"GPU-{number}",
        number,
        memory=memory,
        slots=random.choice([2, 10]),
        used_slots=used[0],
        used_memory=used[1],
        used_cores=cores,
    )


def of_any_card(random: Random, mutex: bool) -> Asked:
    """Return the request of a container that accepts every card."""
    return Asked(structs.replace(asked(random).request, choice=ANY), mutex)


def ours(cards: list[OneCard], container: Asked) -> Counter[str] | None:
    """Return the extender's answer, in the terms of the oracle."""
    request = PodDeviceRequest((ContainerDeviceRequests("main", Phase.APP, (container.request,)),))
    policies = ("mutex",) if container.mutex else ("spread",)
    [answer] = answers(
        [OneNode(cards)], request, Terms("binpack", policies, Weights(), container.room)
    )
    if answer.parts is not None:
        return None
    if "/" not in answer.reason:
        return Counter({answer.reason: 0})
    counted = (part.split(" ") for part in answer.reason.split(", "))
    return Counter({word: int(number.partition("/")[0]) for number, word in counted})


@cache
def question(seed: int) -> tuple[list[OneCard], Asked, Counter[str] | None]:
    """Return the question of a seed, and what the extender answers to it."""
    random = Random(seed)
    cards = [card(random, number) for number in range(random.randint(1, 5))]
    container = asked(random)
    return cards, container, ours(cards, container)


def disagreements(rules: tuple[Rule, ...]) -> tuple[list[int], Counter[str]]:
    """Return the seeds on which oracle and extender disagree, and how often each reason stood."""
    wrong, seen = list[int](), Counter[str]()
    for seed in range(SEEDS):
        cards, container, answer = question(seed)
        expected = hami_oracle.reasons(cards, container, rules)
        seen.update(expected if expected is not None else {"fits": 1})
        if answer != expected:
            wrong.append(seed)
    return wrong, seen


def test_random_cards_are_refused_for_hamis_first_reason() -> None:
    wrong, seen = disagreements(RULES)
    assert wrong == []
    words = {word for word, _ in RULES}
    assert words <= set(seen), "every reason stands somewhere"
    assert {"fits", "NodeInsufficientDevice", "AllocatedCardsInsufficientRequest"} <= set(seen)


@pytest.mark.parametrize(
    "number", range(len(RULES)), ids=lambda index: f"{index}-{RULES[index][0]}"
)
def test_a_rule_that_is_left_out_is_noticed(number: int) -> None:
    wrong, _ = disagreements(RULES[:number] + RULES[number + 1 :])
    assert wrong


@pytest.mark.parametrize(
    "number", range(len(RULES) - 2), ids=lambda index: f"{index}-{RULES[index][0]}"
)
def test_two_rules_in_another_order_are_noticed(number: int) -> None:
    """Ask about all rules but the last two, of which one card cannot break both."""
    first, second = RULES[number], RULES[number + 1]
    wrong, _ = disagreements((*RULES[:number], second, first, *RULES[number + 2 :]))
    assert wrong


@cache
def pod_question(seed: int) -> tuple[list[OneCard], list[Asked], list[Asked], bool]:
    """Return cards, init and app containers of a seed, and whether the extender has room."""
    random = Random(seed)
    cards = [small_card(random, number) for number in range(random.randint(1, 3))]
    mutex = random.random() < 0.2
    init = [of_any_card(random, mutex) for _ in range(random.randint(0, 2))]
    apps = [of_any_card(random, mutex) for _ in range(random.randint(1, 3))]
    phased = [(Phase.INIT, container) for container in init] + [
        (Phase.APP, container) for container in apps
    ]
    request = PodDeviceRequest(
        tuple(
            ContainerDeviceRequests(f"c{number}", phase, (container.request,))
            for number, (phase, container) in enumerate(phased)
        )
    )
    policies = ("mutex",) if mutex else ("spread",)
    [answer] = answers([OneNode(deepcopy(cards))], request, Terms("binpack", policies))
    return cards, init, apps, answer.parts is not None


def test_random_pods_fit_where_they_fit_with_hami() -> None:
    seen = Counter[bool]()
    for seed in range(SEEDS):
        cards, init, apps, fits = pod_question(seed)
        assert fits == hami_oracle.fits_quota(cards, init, apps), seed
        seen[fits] += 1
    assert min(seen[True], seen[False]) > SEEDS // 10


def test_init_containers_that_count_beside_the_others_are_noticed() -> None:
    questions = [pod_question(seed) for seed in range(SEEDS)]
    assert any(
        fits != hami_oracle.fits_quota(cards, [], [*init, *apps])
        for cards, init, apps, fits in questions
    )
