"""Negative controls: the simulation finds the planted defects of nodes, cards and schedulers."""

import pytest

from simulation.defects.cards import DEFECTS_OF_CARDS
from simulation.defects.planting import Defect
from simulation.run import run
from simulation.script.script import CARD_SEEDS

SEEDS_MAX = 60
"""Of the seeds in which there are cards, most of these defects are found within 8."""

FIRST = {"binding-of-any-version": 69, "fence-without-proof": 35, "unbound-never-settled": 30}
"""How many of those seeds are skipped for a rare defect, because they do not find it.

The label of the fence must get lost while the fenced Binding is on its way.
"""


@pytest.mark.parametrize("defect", DEFECTS_OF_CARDS, ids=lambda defect: defect.name)
def test_a_defect_about_cards_is_found(defect: Defect) -> None:
    first = FIRST.get(defect.name, 0)
    seeds = CARD_SEEDS[first : first + SEEDS_MAX]
    caught_at = next((seed for seed in seeds if run(seed, (defect.name,)).violation), None)
    assert caught_at is not None, f"{defect.name} ({defect.says}) is not found in {seeds}"
    assert run(caught_at).violation is None
