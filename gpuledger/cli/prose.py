"""Prose: sentences as lines of a terminal, which cut no word. A pipe gets them unchanged.

A command in backticks stays on one line where it fits, so that it can be copied.
"""

import os
import re
import shutil
import sys
from typing import Final, TextIO

import typer

from gpuledger.cli.tables.display_texts import columns_of

_WORDS: Final = re.compile(r"[^\s`]*`[^`]*`\S*|\S+")


def note(text: str) -> None:
    """Print sentences on standard error."""
    typer.echo(as_prose(text, sys.stderr), err=True)


def as_prose(text: str, stream: TextIO) -> str:
    """Return a text as a stream shows it: each line in the width of a terminal."""
    if not stream.isatty():
        return text
    width = _columns(stream)
    return "\n".join(_filled(line, width) for line in text.split("\n"))


def _filled(line: str, width: int) -> str:
    if columns_of(line) <= width:
        return line
    lines: list[str] = []
    for word in _WORDS.findall(line):
        if lines and columns_of(lines[-1]) + 1 + columns_of(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


def _columns(stream: TextIO) -> int:
    """Return the width of a terminal; standard output may be a pipe meanwhile."""
    if os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80
