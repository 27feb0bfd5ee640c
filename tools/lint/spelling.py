"""Spelling, checked by codespell. A correct word that it reports needs an exception."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from tools.lint.findings import Finding
from tools.lint.tree import Tree

CODESPELL_SECONDS: Final = 60.0

_PROSE: Final = (
    *(".md", ".py", ".c", ".h", ".S", ".sh", ".sql", ".toml", ".yaml", ".yml", ".mk", ".conf"),
    *("Makefile", "Dockerfile", "run"),
)
_FOUND: Final = re.compile(r"(?P<path>[^:]+):(?P<line>\d+): (?P<wrong>[^ ]+) ==> (?P<right>.+)")


class SpellingError(Exception):
    """The spelling is not checked, because codespell could not run."""


def spelling(tree: Tree) -> Iterator[Finding]:
    """Find words that codespell lists as wrong; raise SpellingError if it cannot run."""
    paths = [path for path in tree.paths if path.endswith(_PROSE)]
    if not paths:
        return
    command = [sys.executable, "-m", "codespell_lib", "--", *paths]
    done = subprocess.run(
        command,
        cwd=tree.root,
        capture_output=True,
        text=True,
        check=False,
        timeout=CODESPELL_SECONDS,
    )
    if done.stderr:
        raise SpellingError(f"codespell failed: {done.stderr.strip()}; `make setup` installs it")
    for match in map(_FOUND.fullmatch, done.stdout.splitlines()):
        if match is not None:
            wrong, line = match["wrong"], int(match["line"])
            message = (
                f"'{wrong}' looks like a mistake for {match['right']}: correct it, or list the "
                "word with a reason in tools/lint/exceptions.toml"
            )
            yield Finding("spelling", match["path"], line, wrong.lower(), message)
