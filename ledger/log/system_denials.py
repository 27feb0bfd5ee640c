"""System denials: the answers to commands that are refused for the state of the ledger or its log.

Examples are a full or unreachable log, a full queue, and a namespace over its share of the log.
"""

import math

from ledger.core.model.denials import Denial, Reason

_LATER = "Try again in a few seconds"
_RAISE = "An operator has to raise log_bytes_max; see docs/how-to/operating.md"


def stopped(reason: str) -> Denial:
    """Return the answer of a ledger whose log was found not to be intact."""
    return Denial(
        Reason.LEDGER_STOPPED,
        f"the ledger has stopped: {reason}",
        transient=False,
        remedy="An operator has to look at it; see docs/how-to/operating.md",
    )


def unavailable(reason: str) -> Denial:
    """Return the answer of a ledger that cannot reach its log."""
    return Denial(
        Reason.LEDGER_UNAVAILABLE,
        f"the ledger cannot decide now: {reason}",
        transient=True,
        remedy=_LATER,
    )


def full(reason: str) -> Denial:
    """Return the answer of a ledger whose log has no room for anything."""
    return Denial(
        Reason.LOG_FULL, f"nothing can be recorded: {reason}", transient=False, remedy=_RAISE
    )


def in_reserve(shown: str) -> Denial:
    """Return the answer to a new promise in the log's reserve; `shown` is the size as text."""
    return Denial(
        Reason.LOG_FULL,
        f"the log has {shown}; what is left is kept for commits and releases",
        transient=False,
        remedy=_RAISE,
    )


def no_room(size: int, shown: str) -> Denial:
    """Return the answer to a command whose record of so many bytes has no room in the log."""
    return Denial(
        Reason.LOG_FULL,
        f"the log has {shown}: no room for a record of {size} bytes",
        transient=False,
        remedy=_RAISE,
    )


def over_share(namespace: str, seconds: float) -> Denial:
    """Return the answer to a namespace that may append nothing new for so many seconds."""
    return Denial(
        Reason.LOG_SHARE_EXCEEDED,
        f"namespace {namespace} has written more than its share of the log",
        transient=True,
        remedy=f"Try again in {math.ceil(seconds)} s, and create and change fewer objects; an"
        " operator can raise log_namespace_rate and log_namespace_burst",
    )


def overloaded(reason: str) -> Denial:
    """Return the answer of a ledger with a full queue."""
    return Denial(Reason.OVERLOADED, reason, transient=True, remedy=_LATER)


def defective(problem: str) -> Denial:
    """Return the answer to a command that meets a defect of gpuledger; a retry does not help."""
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
