"""Drift: truth that the ledger did not expect, by cause."""

from typing import Final

from ledger.core.model.events import AnyEvent, Cause, Observed, Released
from ledger.core.model.qualified_names import local_name
from webhook.context.cluster_and_context import Beyond
from webhook.settlement.settlement_session import RECOUNTED

UNENFORCED: Final = "unenforced"
"""The cause where a policy has switched the reviews off: nobody was to be asked."""

_UNEXPECTED: Final = frozenset({Cause.UNRESERVED, Cause.LATE})


def drift_of(event: AnyEvent, beyond: Beyond | None) -> str:
    """Return why an event of settlement is drift, empty when it is none.

    Unexpected are objects seen without a hold, and charges that only a recount found to be over.
    """
    if isinstance(event, Observed) and event.cause in _UNEXPECTED:
        return UNENFORCED if _is_off(event.namespace, beyond) else str(event.cause)
    if isinstance(event, Released) and event.actor == RECOUNTED and event.cause != Cause.MOVED:
        return str(event.cause)
    return ""


def _is_off(namespace: str, beyond: Beyond | None) -> bool:
    if beyond is None:
        return False
    return beyond.context.policies.of(local_name(namespace)).mode == "off"
