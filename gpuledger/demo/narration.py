"""Narration of the demo: a line for each step and claim, in colour on a terminal, and an audit
table."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.text import Text

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

    def opening(self, text: str) -> None:
        """Print the introduction."""
        self._print(text, "bold")

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
        self._print(f"{_INDENT}{text}".rstrip())

    def command(self, text: str) -> None:
        """Show a command as a user types it."""
        self._print(f"{_INDENT}$ {text}", "cyan")

    def claim(self, sentence: str) -> None:
        """Print a claim that was checked."""
        self.claims += 1
        self._console.print(Text(f"{_INDENT}ok  ", style="green") + Text(sentence))

    def block(self, text: str) -> None:
        """Show the output of a command."""
        for line in text.splitlines():
            self.line(line)

    def closing(self, text: str) -> None:
        """Print the result."""
        self._print(f"\n{text}", "bold")

    def _print(self, text: str, style: str = "") -> None:
        # A Text is shown unchanged, so that brackets in messages are not read as markup.
        self._console.print(Text(text, style=style))


FIRST: Final = 4
LAST: Final = 6

_PREFIX: Final = "nvidia.com/"
_ROW: Final = "{:>8}  {:12}  {:8}  {:24}  {:22}  {}"


def excerpt(events: list[dict[str, Any]]) -> str:
    """Return the first and the last events, one per line, with the balance after each."""
    rows = [_ROW.format("POSITION", "TIME", "TYPE", "KEY", "AMOUNTS", "USED AFTER")]
    rows += map(_row, events[:FIRST])
    if len(events) > FIRST + LAST:
        rows.append(f"{'…':>8}  {len(events) - FIRST - LAST} more")
    rows += map(_row, events[FIRST:][-LAST:])
    return "\n".join(row.rstrip() for row in rows)


def _row(event: dict[str, Any]) -> str:
    return _ROW.format(
        event["position"],
        event["time"][11:23],
        event["type"],
        event["key"].removeprefix("pods/") or "-",
        _short(event["amounts"]),
        _short(event["used_after"]),
    )


def _short(amounts: dict[str, int]) -> str:
    """Write amounts without the common prefix of their names."""
    parts = (
        f"{name.rpartition(_PREFIX)[2]}={amount}" for name, amount in amounts.items() if amount
    )
    return ",".join(parts) or "-"
