"""Unplacing pods: which command gives the cards of a placement back."""

import msgspec
import pytest
from support.builders.card_nodes import (
    TEAM,
    advance,
    after,
    card,
    do,
    on_card,
    place,
    pod,
    register,
    share,
    unplace,
)
from support.builders.decide_and_fold import apply

from ledger.core.model import commands
from ledger.core.model.cards import Stage


def test_a_pod_that_is_unplaced_can_be_placed_again() -> None:
    state = after(register(card(0), card(1)), pod("a"), place("a", share(0)))
    do(state, unplace("a"), place("a", share(1)))
    assert (on_card(state, 0), on_card(state, 1)) == ((0, 0, 0), (10, 0, 1))
    do(state, unplace("a"))
    assert apply(state, unplace("a")) == []


@pytest.mark.parametrize("version", [6, 8, 0])
def test_an_unplace_of_another_version_gives_nothing_back(version: int) -> None:
    state = after(register(card(0)), pod("a"), place("a", share(), version=7))
    assert apply(state, unplace("a", version=version)) == []
    do(state, unplace("a", version=7))


def test_an_unplace_of_any_version_gives_the_cards_back() -> None:
    state = after(register(card(0)), pod("a"), place("a", share(), version=7))
    do(state, unplace("a"))


def test_an_unplace_of_another_node_gives_nothing_back() -> None:
    state = after(register(card(0)), pod("a"), place("a", share()))
    other = commands.Unplace(TEAM, "pods/a", "a", "c1/n2", "unbound")
    assert apply(state, other) == []
    assert on_card(state) == (10, 0, 1)


def test_cards_of_a_bound_pod_are_released_when_it_was_seen_elsewhere() -> None:
    state = after(register(card(0)), pod("a"), place("a", share()), advance("a", Stage.BOUND))
    assert apply(state, unplace("a")) == []
    do(state, msgspec.structs.replace(unplace("a"), bound=True))
    assert on_card(state) == (0, 0, 0)
