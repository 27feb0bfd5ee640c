"""Drift counter: stored objects that the ledger did not expect, by cause."""

from typing import Final

from ledger.core.model.events import AnyEvent, Cause, Observed, Released
from ledger.core.model.qualified_names import local_name
from ledger.core.model.traits import is_unread
from ledger.runtime.counter_protocol import Count
from webhook.context.namespace_policies import Policies
from webhook.settlement.charge_settlement_session import RECOUNTED

UNENFORCED: Final = "unenforced"
"""The cause where a policy has switched the reviews off."""

_UNEXPECTED: Final = frozenset({Cause.UNRESERVED, Cause.LATE, Cause.ALLOCATED})


class DriftCounter:
    """Counts drift and unread labels of events in metrics."""

    def __init__(self, policies: Policies, count: Count) -> None:
        self._policies = policies
        self._count = count

    def follow(self, event: AnyEvent) -> None:
        """Count an event of settlement if it is drift, or if it has unread labels."""
        cause = self._cause(event)
        if cause:
            self._count("drift_total", cause)
        traits = getattr(event, "traits", ())
        if traits and is_unread(traits):
            self._count("labels_unread_total")

    def _cause(self, event: AnyEvent) -> str:
        """Return why an event is drift, empty if it is not.

        Drift is an object without a hold, an allocation that takes more than was reserved, and a
        charge that only a recount found to be over. The end of an allocation is none, and neither
        is a device for administration, which has no demand.
        """
        if isinstance(event, Observed) and event.cause in _UNEXPECTED and event.demand:
            policy = self._policies.of(local_name(event.namespace))
            return UNENFORCED if policy.mode == "off" else str(event.cause)
        if isinstance(event, Released) and event.actor == RECOUNTED and event.cause != Cause.MOVED:
            return str(event.cause)
        return ""
