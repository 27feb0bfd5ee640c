"""Words that this repository does not use, and the remedy for each."""

import re
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tools.lint.findings import Finding, Rule
from tools.lint.texts import texts
from tools.lint.tree import Tree

DICTIONARY: Final = Path(__file__).with_name("words.toml")


class Word(NamedTuple):
    """A pattern that is searched for in all prose, and its remedy."""

    pattern: re.Pattern[str]
    remedy: str


def read(file: Path = DICTIONARY) -> tuple[Word, ...]:
    """Return the words of a file. A space in a pattern matches a line break, too."""
    return tuple(
        Word(re.compile(entry["pattern"].replace(" ", r"\s+"), re.IGNORECASE), entry["remedy"])
        for entry in tomllib.loads(file.read_text())["word"]
    )


def rule(dictionary: tuple[Word, ...]) -> Rule:
    """Return the rule that finds the words of a dictionary."""
    return partial(_find, dictionary)


def _find(dictionary: tuple[Word, ...], tree: Tree) -> Iterator[Finding]:
    for path, first, text in texts(tree):
        for word in dictionary:
            for match in word.pattern.finditer(text):
                shown = " ".join(match[0].split())
                line = first + text.count("\n", 0, match.start())
                yield Finding("words", path, line, shown.lower(), f"'{shown}': {word.remedy}")
