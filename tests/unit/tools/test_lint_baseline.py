"""The baseline of `tools.lint` may only shrink, and so may its list of exceptions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.lint import __main__ as lint
from tools.lint import exceptions

Plant = Callable[[dict[str, str]], Path]

NONE: frozenset[str] = frozenset()
WORDY = "It is nobody.\n"


def test_violation_fails_the_lint_when_no_baseline_records_it(plant: Plant) -> None:
    root = plant({"README.md": WORDY})
    assert [line.split(": ")[:2] for line in lint.check(root)] == [["README.md:1", "words"]]


def test_recorded_violations_pass(plant: Plant) -> None:
    root = recorded(plant, {"README.md": WORDY})
    assert (root / lint.BASELINE).read_text() == "words README.md 1\n"
    assert lint.check(root) == []


def test_one_violation_more_fails_with_what_to_mend(plant: Plant) -> None:
    root = recorded(plant, {"README.md": WORDY})
    (root / "README.md").write_text(WORDY * 3)
    assert lint.check(root)[-1] == "README.md: words: 3 in all, 1 recorded: mend 2"


def test_one_violation_less_fails_with_the_command_that_records_it(plant: Plant) -> None:
    root = recorded(plant, {"README.md": WORDY * 2})
    (root / "README.md").write_text(WORDY)
    assert lint.check(root) == ["README.md: words: 1, but 2 recorded: run make lint-baseline"]
    assert lint.write(root, NONE) == []
    assert lint.check(root) == []


def test_baseline_follows_a_file_that_moves(plant: Plant) -> None:
    root = recorded(plant, {"README.md": WORDY})
    (root / "README.md").rename(root / "ABOUT.md")
    assert len(lint.check(root)) == 2
    assert lint.write(root, NONE) == []
    assert (root / lint.BASELINE).read_text() == "words ABOUT.md 1\n"


def test_baseline_is_not_written_when_a_total_rises(plant: Plant) -> None:
    root = recorded(plant, {"README.md": WORDY})
    (root / "ABOUT.md").write_text(WORDY)
    assert lint.write(root, NONE)[-1] == "words: 2 findings, 1 recorded: mend 1"
    assert (root / lint.BASELINE).read_text() == "words README.md 1\n"
    assert lint.write(root, frozenset({"words"})) == []
    assert lint.check(root) == []


def test_baseline_merged_from_two_versions_fails_until_it_is_written_again(plant: Plant) -> None:
    root = recorded(plant, {"README.md": WORDY})
    (root / lint.BASELINE).write_text("words README.md 1\nwords README.md 2\n")
    assert f"{lint.BASELINE}: words README.md twice: run make lint-baseline" in lint.check(root)
    assert lint.write(root, NONE) == []
    assert lint.check(root) == []


def test_exception_lets_a_finding_stay(plant: Plant) -> None:
    root = plant({"README.md": WORDY, lint.EXCEPTIONS: allow("nobody")})
    assert lint.check(root) == []


def test_exception_that_matches_no_finding_fails(plant: Plant) -> None:
    root = plant({"README.md": "It is a pod.\n", lint.EXCEPTIONS: allow("nobody")})
    assert lint.check(root) == [
        f"{lint.EXCEPTIONS}: the exception for rule words, path README.md, subject nobody "
        "matches no finding: remove it"
    ]


def test_exception_without_a_reason_is_refused(plant: Plant) -> None:
    root = plant({lint.EXCEPTIONS: '[[allow]]\nrule = "words"\nreason = " "\n'})
    with pytest.raises(exceptions.ExceptionsError, match="needs a rule and a reason"):
        lint.check(root)


def allow(subject: str) -> str:
    """Return a list of one exception."""
    return f'[[allow]]\nrule = "words"\npath = "README.md"\nsubject = "{subject}"\nreason = "x y"\n'


def recorded(plant: Plant, files: dict[str, str]) -> Path:
    """Return the root of a tree whose findings are recorded."""
    root = plant({**files, lint.BASELINE: ""})
    assert lint.write(root, frozenset({"words"})) == []
    return root
