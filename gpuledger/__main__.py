"""The command `gpuledger`; also `python -m gpuledger`."""

import signal
import sys
from typing import Final

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit status of a command that Ctrl-C ended, as shells count it."""


def main() -> None:
    """Run the command line as `gpuledger`."""
    run("gpuledger")


def run(program: str) -> None:
    """Run the command line under a name. Ctrl-C ends it without a word, whenever it comes."""
    try:
        _run(program)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _run(program: str) -> None:
    from gpuledger.command_line import build

    try:
        build()(prog_name=program)
    except Exception as error:
        from gpuledger.cli.expected_errors import command_error_for
        from gpuledger.cli.prose import note

        stop = command_error_for(error)
        if stop is None:
            raise
        note(f"gpuledger: {stop}")
        sys.exit(stop.status)


if __name__ == "__main__":
    main()
