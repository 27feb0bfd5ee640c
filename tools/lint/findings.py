"""Findings: a finding is one violation, and a rule is a function that yields findings."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tools.lint.tree import Tree


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation. `subject` is the name, word or file that an exception can select."""

    rule: str
    path: str
    line: int
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


Rule = Callable[[Tree], Iterable[Finding]]
"""A rule returns all its findings in a tree."""
