"""Roots and their pods: what they are charged does not depend on who is seen first."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders.quota_commands import NAMESPACE, mib, tell, with_limit

from ledger.core import invariants
from ledger.core.model import commands
from ledger.core.model.commands import BARRED, End, Observe
from ledger.core.model.state import State

ROOTS = ("deployments.apps/web", "jobs.batch/train")
LIMIT = 1_000

amounts = st.integers(min_value=0, max_value=50)
envelopes = st.tuples(amounts, amounts)
pods = st.lists(st.tuples(st.sampled_from((*ROOTS, "", BARRED)), amounts), max_size=8)
seeds = st.integers(min_value=0, max_value=2**32)


def seen_of(envelope: tuple[int, int], drawn: list[tuple[str, int]]) -> list[Observe]:
    """Return observations of two roots and of pods that draw from them, or from none."""
    roots = [
        Observe(NAMESPACE, key, f"uid-{key}", 10 + at, mib(envelope[at]), generation=1)
        for at, key in enumerate(ROOTS)
    ]
    drawing = [
        Observe(NAMESPACE, f"pods/p{at}", f"uid-{at}", 100 + at, mib(amount), root=root)
        for at, (root, amount) in enumerate(drawn)
    ]
    return [*roots, *drawing]


def largest(envelope: tuple[int, int], drawn: list[tuple[str, int]]) -> int:
    """Return the expected usage: per root the larger of E and P, and all other pods."""
    under = {key: sum(amount for root, amount in drawn if root == key) for key in ROOTS}
    alone = sum(amount for root, amount in drawn if root not in ROOTS)
    return alone + sum(max(envelope[at], under[key]) for at, key in enumerate(ROOTS))


def played(sights: list[Observe], state: State) -> None:
    for sight in sights:
        tell(state, sight)
        assert list(invariants.violations(state)) == []


@given(envelopes, pods, seeds)
def test_the_order_of_sight_changes_nothing(envelope, drawn, seed) -> None:
    sights = seen_of(envelope, drawn)
    random.Random(seed).shuffle(sights)
    state = with_limit(LIMIT)
    played(sights, state)
    assert state.used == [largest(envelope, drawn)]


@given(envelopes, pods, seeds)
def test_nothing_is_left_when_all_has_ended_in_any_order(envelope, drawn, seed) -> None:
    source, state, sights = random.Random(seed), with_limit(LIMIT), seen_of(envelope, drawn)
    played(sights, state)
    source.shuffle(sights)
    used = state.used[0]
    for sight in sights:
        tell(state, End(sight.namespace, sight.key, sight.uid, 1_000, "deleted"))
        assert list(invariants.violations(state)) == []
        assert state.used[0] <= used
        used = state.used[0]
    assert used == 0
    assert not state.namespaces[NAMESPACE].draws


@given(envelopes, pods, seeds)
def test_reserving_first_and_seeing_later_is_charged_alike(envelope, drawn, seed) -> None:
    sights = seen_of(envelope, drawn)
    random.Random(seed).shuffle(sights)
    state = with_limit(LIMIT)
    for sight in sights:
        where = (sight.namespace, sight.key, sight.uid, sight.demand)
        tell(state, commands.Reserve(*where, root=sight.root))
    assert state.used == [largest(envelope, drawn)]
    random.Random(seed + 1).shuffle(sights)
    played(sights, state)
    assert state.used == [largest(envelope, drawn)]


@pytest.mark.parametrize("seed", range(3))
def test_a_sum_of_envelope_and_pods_is_noticed(seed, monkeypatch) -> None:
    def added(left, right):
        return {name: left.get(name, 0) + right.get(name, 0) for name in {*left, *right}}

    monkeypatch.setattr("ledger.core.evolve.envelope_charges.largest", added)
    envelope, drawn = (10 + seed, 5), [(ROOTS[0], 7)]
    state = with_limit(LIMIT)
    for sight in seen_of(envelope, drawn):
        tell(state, sight)
    assert state.used != [largest(envelope, drawn)]
