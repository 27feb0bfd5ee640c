"""Exceptions: findings that stay, each with its reason, in `exceptions.toml`."""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tools.lint.findings import Finding


class ExceptionsError(Exception):
    """The list of exceptions cannot be used: an entry lacks its rule or its reason."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Selects findings of a rule by path and subject, with wildcards (`*` also matches `/`)."""

    rule: str
    path: str
    subject: str
    reason: str

    def matches(self, finding: Finding) -> bool:
        """Return whether the finding is this exception."""
        return (
            fnmatchcase(finding.rule, self.rule)
            and fnmatchcase(finding.path, self.path)
            and fnmatchcase(finding.subject, self.subject)
        )

    def __str__(self) -> str:
        return f"rule {self.rule}, path {self.path}, subject {self.subject}"


def read(file: Path) -> tuple[Allowed, ...]:
    """Return the exceptions of a file; raise ExceptionsError for one without rule or reason."""
    return tuple(map(_allowed, tomllib.loads(file.read_text()).get("allow", [])))


def split(
    findings: Iterable[Finding], allowed: tuple[Allowed, ...]
) -> tuple[list[Finding], tuple[Allowed, ...]]:
    """Return the findings without exception, and the exceptions that match no finding."""
    kept, used = [], set()
    for finding in findings:
        matching = [entry for entry in allowed if entry.matches(finding)]
        used.update(matching)
        if not matching:
            kept.append(finding)
    return kept, tuple(entry for entry in allowed if entry not in used)


def report_unneeded(unneeded: Iterable[Allowed], file: str) -> Iterator[str]:
    """Return a line for each exception that is no longer needed."""
    for entry in unneeded:
        yield f"{file}: the exception for {entry} matches no finding: remove it"


def _allowed(entry: dict[str, str]) -> Allowed:
    rule, reason = entry.get("rule", ""), entry.get("reason", "").strip()
    if not rule or not reason:
        raise ExceptionsError(f"exception {entry} needs a rule and a reason")
    return Allowed(rule, entry.get("path", "*"), entry.get("subject", "*"), reason)
