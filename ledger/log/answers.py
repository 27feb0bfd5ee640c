"""Answers that need no decision: the ledger cannot decide now, and says why."""

from ledger.core.denials import Denial, Reason

_LATER = "Try again in a few seconds"


def stopped(reason: str) -> Denial:
    """Return the answer of a ledger whose log was found not to be intact."""
    return Denial(
        Reason.LEDGER_STOPPED,
        f"the ledger has stopped: {reason}",
        transient=False,
        remedy="An operator has to look at it; see docs/operating.md",
    )


def unavailable(reason: str) -> Denial:
    """Return the answer of a ledger that cannot reach its log."""
    return Denial(
        Reason.LEDGER_UNAVAILABLE,
        f"the ledger cannot decide now: {reason}",
        transient=True,
        remedy=_LATER,
    )


def overloaded(reason: str) -> Denial:
    """Return the answer of a ledger that is asked more than it takes."""
    return Denial(Reason.OVERLOADED, reason, transient=True, remedy=_LATER)


def defective(problem: str) -> Denial:
    """Return the answer to a command that meets a defect of ours; asking again does not help."""
    return Denial(
        Reason.INTERNAL_ERROR,
        f"the decision contradicts the ledger's state: {problem}",
        transient=False,
        remedy="Report it with the service's log around this moment; other requests are not hurt",
    )


def too_large(size: int, most: int) -> Denial:
    """Return the answer to a command whose events do not fit into one record, in bytes."""
    return Denial(
        Reason.TOO_LARGE,
        f"the record would have {size} bytes, the log takes {most}",
        transient=False,
        remedy="Split the request, or cover fewer namespaces with one account",
    )
