"""Narration: what the demo tells, one line per step and per claim, in colour on a terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.text import Text

_INDENT: Final = "    "


class Narrator:
    """Numbers the steps, times them and counts the claims that held."""

    def __init__(self) -> None:
        """Tell on standard output."""
        self.claims = 0
        self._console = Console(highlight=False, soft_wrap=True)
        self._begun = time.monotonic()
        self._steps = 0

    @property
    def seconds(self) -> float:
        """Return for how long it has been told."""
        return time.monotonic() - self._begun

    def opening(self, text: str) -> None:
        """Tell what is about to be told."""
        self._print(text, "bold")

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Tell a step, and how long it took."""
        self._steps += 1
        begun = time.monotonic()
        self._print(f"\n{self._steps:2}  {title}", "bold")
        yield
        self._print(f"{_INDENT}{time.monotonic() - begun:.1f} s", "dim")

    def line(self, text: str = "") -> None:
        """Tell something."""
        self._print(f"{_INDENT}{text}".rstrip())

    def command(self, text: str) -> None:
        """Show a command as one would type it."""
        self._print(f"{_INDENT}$ {text}", "cyan")

    def claim(self, sentence: str) -> None:
        """Tell a claim that was checked."""
        self.claims += 1
        self._console.print(Text(f"{_INDENT}ok  ", style="green") + Text(sentence))

    def block(self, text: str) -> None:
        """Show the output of a command."""
        for line in text.splitlines():
            self.line(line)

    def closing(self, text: str) -> None:
        """Tell how it all ended."""
        self._print(f"\n{text}", "bold")

    def _print(self, text: str, style: str = "") -> None:
        # A Text is shown as it is, so that brackets in messages are no markup.
        self._console.print(Text(text, style=style))
