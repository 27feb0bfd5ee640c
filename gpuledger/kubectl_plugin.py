"""The commands `kubectl gpuledger` and its completion, which kubectl runs by the names of files."""

import contextlib
import io
import os
import shlex
import sys
from typing import Final

PROGRAM: Final = "kubectl gpuledger"
"""The name of the program in texts about usage."""

FILES_OTHERWISE: Final = 0
"""The directive by which the shell proposes files where there are no completions."""

WORDS_MAX: Final = 100
"""Words of a command line that are completed."""


def main() -> None:
    """Run the command line as `kubectl gpuledger`."""
    from gpuledger.__main__ import run

    run(PROGRAM)


def complete() -> None:
    """Print the completions of the last argument, one a line, and the directive for kubectl.

    They are those that bash gets, by the same variables.
    """
    from gpuledger.command_line import build

    words = ["gpuledger", *sys.argv[1:][:WORDS_MAX]]
    os.environ["_GPULEDGER_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"] = shlex.join(words)
    os.environ["COMP_CWORD"] = str(max(1, len(words) - 1))
    written = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(written):
        build()(prog_name="gpuledger")
    lines = [*written.getvalue().split(), f":{FILES_OTHERWISE}"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
