"""Narration of the demo: a line for each step, command and claim, in colour on a terminal."""

import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.text import Text

LEAST_COLUMNS: Final = 20
"""Columns of a command on a terminal that is too narrow for a table."""

_INDENT: Final = "    "


class Narrator:
    """Numbers the steps, times them and counts the claims that held."""

    def __init__(self) -> None:
        """Print on standard output."""
        self.claims = 0
        self._console = Console(highlight=False, soft_wrap=True)
        self._begun = time.monotonic()
        self._steps = 0

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._begun

    @property
    def columns(self) -> int:
        """Return the columns that an output has on this terminal, 0 in a pipe."""
        room = self._console.width - len(_INDENT)
        return max(room, LEAST_COLUMNS) if self._console.is_terminal else 0

    def opening(self, text: str) -> None:
        """Print the introduction."""
        self._print(self._wrapped(text, ""), "bold")

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Print a step, and how long it took."""
        self._steps += 1
        begun = time.monotonic()
        self._print(f"\n{self._steps:2}  {title}", "bold")
        yield
        self._print(f"{_INDENT}{time.monotonic() - begun:.1f} s", "dim")

    def line(self, text: str = "") -> None:
        """Print a line."""
        self._print(self._wrapped(text, _INDENT))

    def command(self, text: str) -> None:
        """Show a command as a user types it."""
        self._print(f"{_INDENT}$ {text}", "cyan")

    def claim(self, sentence: str) -> None:
        """Print a claim that was checked."""
        self.claims += 1
        mark = f"{_INDENT}ok  "
        wrapped = self._wrapped(f"ok  {sentence}", _INDENT, " " * len(mark))
        self._console.print(Text(mark, style="green") + Text(wrapped.removeprefix(mark)))

    def block(self, text: str) -> None:
        """Show the output of a command."""
        for line in text.splitlines():
            self._print(f"{_INDENT}{line}".rstrip())

    def closing(self, text: str) -> None:
        """Print the result."""
        self._print(f"\n{text}", "bold")

    def _wrapped(self, text: str, indent: str, rest: str | None = None) -> str:
        """Return a text as lines of the terminal's width, in a pipe as one; no word is cut."""
        width = self._console.width if self._console.is_terminal else sys.maxsize
        return textwrap.fill(
            text,
            width,
            initial_indent=indent,
            subsequent_indent=indent if rest is None else rest,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _print(self, text: str, style: str = "") -> None:
        # A Text is shown unchanged, so that brackets in messages are not read as markup.
        self._console.print(Text(text, style=style))


FIRST: Final = 5
"""Lines at the beginning of a long output, with the header."""

LAST: Final = 6


def excerpt(text: str) -> str:
    """Return the first and the last lines of an output, and how many were left out."""
    lines = text.splitlines()
    left_out = len(lines) - FIRST - LAST
    if left_out <= 1:
        return text
    return "\n".join((*lines[:FIRST], f"… {left_out} more lines", *lines[-LAST:]))
