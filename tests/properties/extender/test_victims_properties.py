"""The choice of victims, against all choices that there are."""

from collections.abc import Sequence
from itertools import chain, combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.preemption.victim_choice import Candidate, choose
from ledger.core.model.cards import Part, Phase, Placement, Share

CARDS = 3
MEMORY = 10
PODS_MAX = 7


class _Node:
    """A node with some cards, pods on them, and how many cards with how much free are wanted."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        free = [MEMORY] * CARDS
        self.pods: list[Candidate] = []
        self.allowed = {name: random.randrange(3) for name in ("b1", "b2")}
        for number in range(random.randrange(PODS_MAX + 1)):
            shares = []
            for card in random.sample(range(CARDS), random.randrange(1, CARDS + 1)):
                taken = random.randrange(free[card] + 1)
                free[card] -= taken
                shares.append(Share(f"GPU-{card}", taken, 0))
            parts = (Part("main", Phase.APP, tuple(shares)),)
            budgets = tuple(name for name in self.allowed if random.random() < 0.2)
            name = f"p{number}"
            placed = Placement(name, "east/n1", parts, {}, random.randrange(4))
            priority = random.randrange(3)
            self.pods.append(Candidate(("east/t", name, name), placed, priority, budgets))
        self._free = free
        self._wanted, self._each = random.randrange(1, CARDS + 1), random.randrange(1, MEMORY + 1)
        random.shuffle(self.pods)

    def fits(self, leaving: Sequence[Candidate]) -> bool:
        free = list(self._free)
        for pod in leaving:
            for share in pod.placed.parts[0].shares:
                free[int(share.uuid[-1])] += share.memory
        return sum(there >= self._each for there in free) >= self._wanted

    def subsets(self) -> list[tuple[Candidate, ...]]:
        sizes = range(len(self.pods) + 1)
        return list(chain.from_iterable(combinations(self.pods, size) for size in sizes))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**40))
def test_the_most_important_victim_is_as_unimportant_as_in_any_choice(seed: int) -> None:
    node = _Node(seed)
    pods = [pod._replace(budgets=()) for pod in node.pods]
    possible = [subset for subset in node.subsets() if node.fits(subset)]
    victims = choose(pods, {}, node.fits)
    assert (victims is None) == (not possible)
    if victims is not None:
        assert node.fits(victims)
        assert _most(victims) == min(map(_most, possible))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**40))
def test_no_victim_is_needless_and_no_budget_is_overdrawn(seed: int) -> None:
    node = _Node(seed)
    victims = choose(node.pods, node.allowed, node.fits)
    for victim in victims or ():
        assert not node.fits([other for other in victims or () if other is not victim])
    for budget, most in node.allowed.items():
        assert sum(budget in pod.budgets for pod in victims or ()) <= most


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**40))
def test_the_order_of_the_pods_changes_nothing(seed: int) -> None:
    node = _Node(seed)
    again = sorted(node.pods, key=lambda pod: pod.subject)
    assert choose(again, node.allowed, node.fits) == choose(node.pods, node.allowed, node.fits)


def _most(victims: Sequence[Candidate]) -> float:
    return max((victim.priority for victim in victims), default=float("-inf"))
