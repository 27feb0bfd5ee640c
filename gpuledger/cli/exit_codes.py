"""Exit codes of commands, the error that ends a command with one, and the code of each denial.

The codes are public and never change their meaning. `expected_errors` has the code of each other
error.
"""

from enum import IntEnum
from typing import Final

from ledger.core.model.denials import Denial, Reason, sentence


class Exit(IntEnum):
    """The result of a command."""

    OK = 0
    """Done, or the check passed."""
    FAILED = 1
    """Failed, or the check did not pass."""
    USAGE = 2
    """The command line, a setting or an input file is invalid; nothing was done."""
    NOT_FOUND = 3
    """There is no such ledger, quota, object or position."""
    DENIED = 4
    """The ledger denies the request: it does not fit, or is not permitted."""
    UNREACHABLE = 5
    """The log cannot be reached."""
    NOT_READY = 6
    """Not in time: another process holds the store, or the answer took too long."""


class CommandError(Exception):
    """Ends a command with an exit code and a sentence for standard error."""

    def __init__(self, status: Exit, message: str) -> None:
        """Store the exit code and the sentence."""
        super().__init__(message)
        self.status: Final = status


_OF_REASON: Final = {
    Reason.LEDGER_UNAVAILABLE: Exit.UNREACHABLE,
    Reason.LOG_FULL: Exit.FAILED,
    Reason.OVERLOADED: Exit.NOT_READY,
    Reason.LEDGER_STOPPED: Exit.FAILED,
    Reason.INTERNAL_ERROR: Exit.FAILED,
}


def denied_error(denial: Denial) -> CommandError:
    """Return the error of a command that the ledger has denied."""
    return CommandError(_OF_REASON.get(denial.reason, Exit.DENIED), sentence(denial))
