"""Resizing placed pods: other amounts on the same cards."""

import pytest
from support.builders.card_nodes import (
    after,
    card,
    do,
    on_card,
    place,
    pod,
    refused,
    register,
    resize,
    share,
)


def test_a_resize_takes_and_gives_within_the_card() -> None:
    state = after(register(card(0)), pod("a"), pod("b"), place("a", share(0, 10)))
    do(state, place("b", share(0, 20)), resize("a", share(0, 20, 30)))
    assert on_card(state) == (40, 30, 2)
    assert refused(state, resize("a", share(0, 21, 30))) == "CardInsufficientMemory"
    do(state, resize("a", share(0, 5, 30)))
    assert on_card(state) == (25, 30, 2)


@pytest.mark.parametrize(
    "other",
    [
        (share(1, 10),),
        (share(0, 10), share(0, 10)),
        (share(0, 10, exclusive=True),),
        (share(0, 10, profile="1g", size=1),),
    ],
)
def test_a_resize_moves_no_pod_and_gives_it_no_card_alone(other) -> None:
    state = after(register(card(0), card(1)), pod("a"), pod("b"))
    do(state, place("a", share(0)), place("b", share(0)))
    assert refused(state, resize("a", *other)) == "InvalidPlacement"


def test_a_pod_without_cards_cannot_be_resized() -> None:
    state = after(register(card(0)), pod("a"))
    assert refused(state, resize("a", share())) == "PodUnknown"
