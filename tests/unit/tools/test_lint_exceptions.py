"""A finding fails the lint, and so does an exception that is needless or has no reason."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.lint import __main__ as lint
from tools.lint import exceptions

Plant = Callable[[dict[str, str]], Path]

WORDY = "It is nobody.\n"


def test_violation_fails_the_lint_when_no_exception_allows_it(plant: Plant) -> None:
    root = plant({"README.md": WORDY})
    assert [line.split(": ")[:2] for line in lint.check(root)] == [["README.md:1", "words"]]


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
