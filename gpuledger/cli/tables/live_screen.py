"""Live screen: redraws a state on a terminal until the key q or Ctrl-C.

The alternate screen keeps what the terminal had before. The whole screen is written at once, so
that it does not flicker.
"""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from gpuledger.cli import progress
from gpuledger.cli.exit_codes import CommandError
from gpuledger.cli.tables.top_screen import TopState, screen


def shows_live() -> bool:
    """Return whether standard output is a terminal that can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


async def live(ask: Callable[[], Awaitable[TopState]], every: float) -> None:
    """Show what `ask` returns every `every` seconds. An error is shown until the next try.

    Raises CommandError if the first try fails.
    """
    progress.hidden.set(True)
    stop = asyncio.Event()
    console = Console()
    state = await ask()
    error = ""
    with _ending(stop), Live(console=console, screen=True, auto_refresh=False) as shown:
        while not stop.is_set():
            width, height = console.size
            text = screen(state, width, height - bool(error))
            if error:
                text.append(f"\n{error}"[: width + 1], "red")
            shown.update(text, refresh=True)
            try:
                await asyncio.wait_for(stop.wait(), every)
            except TimeoutError:
                state, error = await _next(ask, state)


async def _next(ask: Callable[[], Awaitable[TopState]], before: TopState) -> tuple[TopState, str]:
    """Return the present state, or the state before and the error."""
    try:
        return await ask(), ""
    except CommandError as error:
        return before, str(error)


@contextmanager
def _ending(stop: asyncio.Event) -> Iterator[None]:
    """Set the event at the key q, Ctrl-C or the end of input, for the block."""
    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    before = termios.tcgetattr(keyboard) if sys.stdin.isatty() else None

    def read() -> None:
        keys = os.read(keyboard, 64)
        if not keys or b"q" in keys.lower():
            stop.set()

    try:
        if before is not None:
            tty.setcbreak(keyboard)
            loop.add_reader(keyboard, read)
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if before is not None:
            loop.remove_reader(keyboard)
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
