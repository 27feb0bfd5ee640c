"""Progress of long work: a bar on standard error if that is a terminal."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

Progress = Callable[[int, int], None]
"""Called with `(done, total)`; a total of 0 is not known."""

REDRAW_SECONDS: Final = 0.1
"""Shortest time between two drawings of the bar; the work may report a million times."""

hidden: ContextVar[bool] = ContextVar("hidden", default=False)
"""Whether bars are left out, because another part draws on the terminal."""


def ignore(_done: int, _total: int) -> None:
    """Ignore the progress."""


@contextmanager
def bar(title: str) -> Iterator[Progress]:
    """Show a bar for as long as the block runs and yield the function that moves it.

    A terminal that cannot be redrawn shows none, because an empty line would stay of it.
    """
    if hidden.get() or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield ignore
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=None)
        drawn = 0.0

        def move(done: int, total: int) -> None:
            nonlocal drawn
            now = time.monotonic()
            if now - drawn >= REDRAW_SECONDS or done >= total > 0:
                drawn = now
                shown.update(task, completed=done, total=total or None)

        yield move
