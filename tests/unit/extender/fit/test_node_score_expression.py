"""Node score expressions: their syntax, their values, and their errors."""

import numpy as np
import pytest

from extender.fit.node_score_expression import LENGTH_MAX, NAMES, NodeScore, NodeScoreError

VALUES = {name: np.array([float(place), 1.0]) for place, name in enumerate(NAMES)}


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("memory", 0.0),
        ("3*memory + cores - 5*whole", -14.0),
        ("-(slots + 1) / 2", -1.5),
        ("+cards * 0.25", 1.0),
        ("7", 7.0),
    ],
)
def test_expression_scores_by_its_terms(text: str, first: float) -> None:
    assert np.broadcast_to(NodeScore(text).score(VALUES), (2,))[0] == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory + speed", "unknown name speed, known are .* at character 10"),
        ("memory ** 2", "another operator than"),
        ("not memory", "another sign than"),
        ("cores / whole", "a division by something else than a number"),
        ("cores / 0", "a division by something else than a number"),
        ("1e10", "no number up to"),
        ("True", "no number up to"),
        ("'a'", "no number up to"),
        ("abs(memory)", "something else than numbers"),
        ("memory[0]", "something else than numbers"),
        ("memory +", "is not an expression at character"),
        ("", "is not an expression at character 1"),
        ("memory; cores", "is not an expression at character 7"),
        ("1+" * LENGTH_MAX + "1", "characters are more than"),
    ],
)
def test_invalid_expression_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(NodeScoreError, match=message):
        NodeScore(text)


def test_deep_nesting_does_not_evade_the_bound() -> None:
    deep = "-" * (LENGTH_MAX - 1) + "1"
    assert NodeScore(deep).score(VALUES) == -1.0
