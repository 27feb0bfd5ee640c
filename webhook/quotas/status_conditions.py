"""Conditions: what the status of an object says about it, in Kubernetes' own form."""

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

QuotaStatusConditions = dict[str, Any]

_MICROSECONDS: Final = 1_000_000


class Condition(NamedTuple):
    """A condition of a type, "True" or "False", with a reason in one word and a message."""

    type: str
    status: str
    reason: str
    message: str

    def shown(
        self, known: QuotaStatusConditions, generation: int, now: int
    ) -> QuotaStatusConditions:
        """Return the condition about a generation, at `now` in µs of Unix time.

        It holds since it does according to the status that is `known`.
        """
        return {
            **self._asdict(),
            "observedGeneration": generation,
            "lastTransitionTime": _since(known, self.type, self.status) or _text(now),
        }


def _since(known: QuotaStatusConditions, kind: str, status: str) -> str:
    """Return since when a condition has a status according to what is known of it, or nothing."""
    conditions = known.get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, dict) and (one.get("type"), one.get("status")) == (kind, status):
            return str(one.get("lastTransitionTime") or "")
    return ""


def _text(now: int) -> str:
    return datetime.fromtimestamp(now // _MICROSECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
