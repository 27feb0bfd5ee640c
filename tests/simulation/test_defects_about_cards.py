"""Negative controls about nodes, cards, schedulers and Bindings, like those of other mistakes."""

import pytest

from gpuledger.simulation.card_defects import DEFECTS_OF_CARDS
from gpuledger.simulation.planting import Defect
from gpuledger.simulation.running import run
from gpuledger.simulation.script import CARD_SEEDS

SEEDS_MAX = 60
"""Of the seeds in which there are cards, most of these defects are found within 8."""


@pytest.mark.parametrize("defect", DEFECTS_OF_CARDS, ids=lambda defect: defect.name)
def test_a_defect_about_cards_is_found(defect: Defect) -> None:
    seeds = CARD_SEEDS[:SEEDS_MAX]
    found = next((seed for seed in seeds if run(seed, (defect.name,)).violation), None)
    assert found is not None, f"{defect.name} ({defect.says}) is not found in {seeds}"
    assert run(found).violation is None
