"""Scaling: which cards are promised beyond what they have, and what is refused as a mistake."""

import pytest

from extender.settlement import overcommit
from extender.settlement.overcommit import CardScaling, read_scaling, scaled_cards
from ledger.core.model.cards import MIG, Card

CARD = Card("GPU-0", 0, "NVIDIA A10", 24_577, 100, 10)


def amounts(card: Card) -> tuple[int, int, int, int]:
    return card.memory, card.cores, card.memory_scale, card.cores_scale


def scaled(card: Card = CARD, node: str = "gpu-1", scalings=(), **annotations: str) -> Card:
    given = {getattr(overcommit, key): value for key, value in annotations.items()}
    (counted,), warning = scaled_cards([card], node, given, scalings)
    assert not warning
    return counted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node:gpu-*=memory:150", CardScaling(memory=150, node="gpu-*")),
        ("type:A10=cores:200,memory:90", CardScaling(memory=90, cores=200, type="A10")),
    ],
)
def test_an_item_of_the_setting_selects_by_node_or_type(text, expected):
    assert read_scaling(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "memory:150",
        "gpu-*=memory:150",
        "node:=memory:150",
        "node:a=memory",
        "node:a=slots:2",
        "node:a=memory:0",
        "node:a=memory:1001",
        "node:a=memory:1.5",
        "node:a=memory:٣",
    ],
)
def test_invalid_scaling_is_refused_with_the_setting_named(text):
    with pytest.raises(ValueError, match="card_scaling"):
        read_scaling(text)


def test_the_first_scaling_that_means_a_card_is_used_and_rounds_down():
    scalings = (
        CardScaling(memory=150, node="cpu-*"),
        CardScaling(memory=150, type="a10"),
        CardScaling(200),
    )
    assert amounts(scaled(scalings=scalings)) == (36_865, 100, 150, 100)


def test_annotation_of_the_node_goes_before_the_setting():
    card = scaled(scalings=(CardScaling(memory=150, cores=150),), MEMORY="200")
    assert amounts(card) == (49_154, 150, 200, 150)


def test_a_card_that_is_cut_has_what_it_has():
    cut = Card("GPU-0", 0, "NVIDIA A100", 40_000, 100, 7, mode=MIG)
    assert scaled(cut, scalings=(CardScaling(memory=200, cores=200),)) == cut


def test_invalid_annotation_scales_nothing_and_is_reported():
    counted, warning = scaled_cards([CARD], "n", {overcommit.MEMORY: "1.5"}, ())
    assert counted == (CARD,)
    assert overcommit.MEMORY in warning
    assert "1.5" in warning
