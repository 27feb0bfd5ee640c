"""Negative controls: the simulation finds the planted defects of nodes, cards and schedulers."""

import pytest

from simulation.defects.cards import DEFECTS_OF_CARDS
from simulation.defects.planting import Defect
from simulation.run import run
from simulation.script.script import CARD_SEEDS

SEEDS_MAX = 60
"""Of the seeds in which there are cards, most of these defects are found within 8."""

FIRST = {
    "annotations-believed": 6,
    "binding-of-any-version": 70,
    "claim-ignored": 10,
    "exclusivity-unchecked": 11,
    "fence-without-proof": 72,
    "ill-cards-given": 21,
    "no-undo": 6,
    "others-unseen": 5,
    "unbound-never-settled": 88,
    "unclear-means-refused": 5,
}
"""How many of those seeds are skipped, because they do not find the defect: a run takes 0.4 s.

A change of the simulation may make the first seed that finds a defect a later one.
"""


@pytest.mark.parametrize("defect", DEFECTS_OF_CARDS, ids=lambda defect: defect.name)
def test_a_defect_about_cards_is_found(defect: Defect) -> None:
    first = FIRST.get(defect.name, 0)
    seeds = CARD_SEEDS[first : first + SEEDS_MAX]
    caught_at = next((seed for seed in seeds if run(seed, (defect.name,)).violation), None)
    assert caught_at is not None, f"{defect.name} ({defect.says}) is not found in {seeds}"
    assert run(caught_at).violation is None
