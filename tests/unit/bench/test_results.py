"""Results of measurements are judged by their goals and written as they were."""

from pathlib import Path

import msgspec
import pytest

from tests.bench.harness import results
from tests.bench.harness.results import Goal, Report, result


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal(100, "least"), True),
        (Goal(101, "least"), False),
        (Goal(100, "most"), True),
        (Goal(99, "most"), False),
        (Goal(0.5, "least", "ratio"), True),
        (Goal(0.4, "most", "ratio"), False),
    ],
)
def test_a_goal_bounds_the_value_or_the_ratio(goal: Goal, met: bool) -> None:
    judged = result("speed", 100, "m/s", baseline=200, goal=goal)
    assert judged.ratio == 0.5
    assert judged.met is met


def test_a_result_is_judged_before_it_is_rounded() -> None:
    judged = result("speed", 1.50001, "s", goal=Goal(1.5, "most"))
    assert judged.value == 1.5
    assert judged.met is False


def test_without_a_goal_nothing_is_met_or_missed() -> None:
    assert result("speed", 100, "m/s").met is None


def test_a_report_is_written_with_the_fields_that_others_read(tmp_path: Path) -> None:
    measured = result("speed", 100, "m/s", goal=Goal(1, "least"), note="by hand")
    path = tmp_path / "latest.json"
    results.write(Report(results.machine(), [measured]), path)
    written = msgspec.json.decode(path.read_bytes())
    assert set(written) == {"machine", "results"}
    assert {"name", "value", "unit", "baseline", "ratio", "goal", "met"} <= set(
        written["results"][0]
    )
    assert [file.name for file in tmp_path.iterdir()] == ["latest.json"]


def test_a_row_has_the_figure_of_the_base_commit_beside_it() -> None:
    known = msgspec.json.decode(results.BEFORE.read_bytes())
    name, figure = next((name, figure) for name, figure in known.items() if "ratio" in figure)
    judged = result(name, 100, "m/s")
    assert judged.before == results.Figure(figure["value"], figure["ratio"])
    text = list(results.table([judged]).columns[results.COLUMNS.index("75bd653")].cells)
    assert text == [f"{figure['value']:,g} ({figure['ratio']:.2f})"]
