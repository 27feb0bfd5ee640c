"""Advancing placements: a stage never goes back."""

from support.builders.card_nodes import (
    advance,
    after,
    card,
    do,
    place,
    pod,
    register,
    share,
)
from support.builders.decide_and_fold import apply

from ledger.core.model.cards import Stage


def test_a_placement_does_not_go_back() -> None:
    state = after(register(card(0)), pod("a"), place("a", share()))
    do(state, advance("a", Stage.ALLOCATED, initialised=True))
    assert apply(state, advance("a", Stage.BOUND)) == []
    assert apply(state, advance("a", Stage.ALLOCATED, initialised=False)) == []
