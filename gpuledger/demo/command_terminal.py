"""Command terminal: a pseudo-terminal on which the demo runs the commands that it shows.

So the demo prints on a terminal what the command itself would print there, in lines that fit.
"""

import asyncio
import os
import pty
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_BYTES: Final = 65_536


class CommandTerminal:
    """The two ends of a pseudo-terminal; `theirs` is the standard output of a process."""

    def __init__(self, ours: int, theirs: int) -> None:
        self._ours, self.theirs = ours, theirs

    async def read(self, seconds: float) -> str:
        """Return the output of the started process, once it has ended. Raises TimeoutError."""
        os.close(self.theirs)
        self.theirs = -1
        printed = await asyncio.to_thread(self._read, time.monotonic() + seconds)
        return printed.decode(errors="replace").replace("\r\n", "\n")

    def _read(self, end: float) -> bytes:
        printed = b""
        try:
            while select.select([self._ours], [], [], max(end - time.monotonic(), 0))[0]:
                if not (piece := os.read(self._ours, _BYTES)):
                    return printed
                printed += piece
        except OSError:
            # Linux reports the end of a pseudo-terminal as EIO.
            return printed
        raise TimeoutError


@contextmanager
def command_terminal() -> Iterator[CommandTerminal]:
    """Open a pseudo-terminal for the block; its width is the variable COLUMNS of its process."""
    ours, theirs = pty.openpty()
    terminal = CommandTerminal(ours, theirs)
    try:
        yield terminal
    finally:
        os.close(ours)
        if terminal.theirs >= 0:
            os.close(terminal.theirs)
