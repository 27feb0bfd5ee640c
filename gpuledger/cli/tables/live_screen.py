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
    state = await ask()
    try:
        async with asyncio.timeout(None) as running:
            with _ending(running):
                await _redraw(state, ask, every)
    except TimeoutError:
        if not running.expired():
            raise


async def _redraw(state: TopState, ask: Callable[[], Awaitable[TopState]], every: float) -> None:
    """Show the state, and what `ask` returns, until this is cancelled."""
    console, error = Console(), ""
    with Live(console=console, screen=True, auto_refresh=False) as shown:
        while True:
            width, height = console.size
            text = screen(state, width, height - bool(error))
            if error:
                text.append(f"\n{error}"[: width + 1], "red")
            shown.update(text, refresh=True)
            await asyncio.sleep(every)
            state, error = await _next(ask, state)


async def _next(ask: Callable[[], Awaitable[TopState]], before: TopState) -> tuple[TopState, str]:
    """Return the present state, or the state before and the error."""
    try:
        return await ask(), ""
    except CommandError as error:
        return before, str(error)


@contextmanager
def _ending(running: asyncio.Timeout) -> Iterator[None]:
    """End the deadline, and so a question in progress, at the key q, Ctrl-C or the end of input."""
    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(keyboard) if sys.stdin.isatty() else None

    def stop() -> None:
        if not running.expired():
            running.reschedule(loop.time())

    def read() -> None:
        keys = os.read(keyboard, 64)
        if not keys or b"q" in keys.lower():
            stop()

    loop.add_signal_handler(signal.SIGINT, stop)
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
