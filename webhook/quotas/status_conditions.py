"""Status conditions of our own kinds, in the form of Kubernetes."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

ObjectStatus = dict[str, Any]
"""The status of an object, or a part of it, ready for JSON."""

_MICROSECONDS: Final = 1_000_000

READY: Final = "Ready"
"""The type of the condition that sums the others up, for tables and `kubectl wait`."""


class Condition(NamedTuple):
    """A condition of a type: "True" or "False", a reason in one word, and a message."""

    type: str
    status: str
    reason: str
    message: str

    def shown(self, known: ObjectStatus, generation: int, now: int) -> ObjectStatus:
        """Return the condition as an object about a generation, at `now` in µs of Unix time.

        The time of its last transition is that of the `known` status, if the condition is the same.
        """
        return {
            **self._asdict(),
            "observedGeneration": generation,
            "lastTransitionTime": _since(known, self.type, self.status) or _text(now),
        }


def ready(conditions: Sequence[Condition]) -> Condition:
    """Return the condition Ready: the first condition that is not True, else the first one."""
    first = next((part for part in conditions if part.status != "True"), conditions[0])
    return first._replace(type=READY)


def _since(known: ObjectStatus, kind: str, status: str) -> str:
    """Return the last transition of a condition in a known status, empty if it differs."""
    conditions = known.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and (condition.get("type"), condition.get("status")) == (
            kind,
            status,
        ):
            return str(condition.get("lastTransitionTime") or "")
    return ""


def _text(now: int) -> str:
    return datetime.fromtimestamp(now // _MICROSECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
