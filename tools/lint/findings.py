"""Finding: one violation. Rule: a function that finds violations."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tools.lint.tree import Tree


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation. `excess` is the value minus the bound, and 1 where each violation counts.

    `subject` is the name, word or file that an exception can select.
    """

    rule: str
    path: str
    line: int
    subject: str
    message: str
    excess: int = 1

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


Rule = Callable[[Tree], Iterable[Finding]]
"""A rule returns all its findings in a tree."""
