"""Pseudo-terminal: commands in one process, on a terminal of a given width or in a pipe."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from typing import Final

from support.harness.command_line import SECONDS, environment

_ROWS: Final = 24
_END: Final = "\x1e"

_SCRIPT: Final = """
import json, sys
from gpuledger.command_line import build
app = build()
for arguments in json.loads(sys.argv[1]):
    try:
        app(arguments, prog_name="gpuledger")
    except SystemExit:
        pass
    print("\\x1e", end="", flush=True)
"""


def on_terminal(commands: Sequence[Sequence[str]], columns: int = 80) -> list[list[str]]:
    """Return the lines that commands print on a terminal; errors have none."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, columns, 0, 0))
    variables = environment(TERM="dumb")
    variables.pop("COLUMNS", None)
    with subprocess.Popen(_call(commands), stdout=theirs, stderr=subprocess.DEVNULL, env=variables):
        os.close(theirs)
        return _outputs(_read(ours).decode())


def in_a_pipe(commands: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the lines that commands print into a pipe."""
    done = subprocess.run(
        _call(commands), capture_output=True, timeout=SECONDS, env=environment(), check=True
    )
    return _outputs(done.stdout.decode())


def _call(commands: Sequence[Sequence[str]]) -> list[str]:
    return [sys.executable, "-c", _SCRIPT, json.dumps(commands)]


def _outputs(printed: str) -> list[list[str]]:
    *outputs, _ = printed.replace("\r\n", "\n").split(_END)
    return [output.splitlines() for output in outputs]


def _read(terminal: int) -> bytes:
    """Return everything that is printed on a terminal until it is closed."""
    printed = b""
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:
            # Linux reports the end of a pseudo-terminal as EIO.
            piece = b""
        if not piece:
            os.close(terminal)
            return printed
        printed += piece
