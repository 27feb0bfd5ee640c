"""YAML lint: yamllint over files that a person writes and objects that the chart renders.

This module owns the dependency yamllint.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from yamllint import linter
from yamllint.config import YamlLintConfig

CONFIGURATION: Final = Path(__file__).parent / "yamllint.yaml"
_RENDERED: Final = "\nrules: {line-length: disable, empty-lines: disable, comments: disable}\n"


def written(root: Path) -> Iterator[str]:
    """Return the findings in the YAML files of deploy/, without templates."""
    rules = YamlLintConfig(CONFIGURATION.read_text())
    for path in sorted((root / "deploy").rglob("*.yaml")):
        if "templates" not in path.parts:
            for problem in linter.run(path.read_text(), rules):
                yield f"{path.relative_to(root)}:{problem.line}: {problem.message}"


def rendered(name: str, text: str) -> Iterator[str]:
    """Return the findings in a rendered object, which long lines are not."""
    rules = YamlLintConfig(f"extends: {CONFIGURATION}{_RENDERED}")
    for problem in linter.run(text, rules):
        yield f"{name}:{problem.line}: {problem.message}"
