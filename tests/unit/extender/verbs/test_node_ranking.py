"""Ranking of nodes: the best ones by score, and later ones only without any other."""

import numpy as np
import pytest

from extender.verbs.node_ranking import best_nodes


@pytest.mark.parametrize(
    ("scores", "feasible", "later", "best"),
    [
        ([1.0, 2.0, 2.0], [1, 1, 1], [0, 0, 0], [1, 2]),
        ([1.0, 2.0, 3.0], [1, 1, 0], [0, 0, 0], [1]),
        ([1.0, 2.0, 2.0], [1, 1, 1], [0, 1, 1], [0]),
        ([1.0, 2.0, 2.0], [0, 1, 1], [0, 1, 1], [1, 2]),
        ([1.0, 2.0, 3.0], [1, 1, 1], [1], [2]),
        ([1.0, 2.0, 3.0], [0, 0, 0], [0, 0, 0], []),
        ([np.inf, 1.0, np.inf], [1, 1, 1], [0, 0, 0], [0, 2]),
        ([np.nan, 1.0, np.nan], [1, 1, 1], [0, 0, 0], [0, 1, 2]),
    ],
    ids=[
        "equal scores",
        "not feasible",
        "better but later",
        "all later",
        "unregistered nodes",
        "nowhere",
        "scores without a bound",
        "scores that are no numbers",
    ],
)
def test_best_nodes_are_those_with_the_highest_score(
    scores: list[float], feasible: list[int], later: list[int], best: list[int]
) -> None:
    arrays = np.array(feasible, np.bool_), np.array(later, np.bool_)
    assert np.nonzero(best_nodes(np.array(scores), *arrays))[0].tolist() == best
