"""Failed objects: an object of a watch that cannot be handled does not stop the service.

Such a failure is a bug of gpuledger. It is logged with its traceback, counted, and shown by
readiness until the object is handled or gone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

import structlog

METRIC: Final = "watch_failures_total"

REMEMBERED_MAX: Final = 256
"""Maximum number of recorded objects; further ones are only logged and counted."""

SHOWN_MAX: Final = 8
"""Objects that readiness names; it counts the others."""

Count = Callable[..., None]
"""Increments the counter with a name and labels."""

_REASON_MAX: Final = 200
_log: Final = structlog.get_logger("ledger.kube")


def _uncounted(name: str, *labels: str) -> None:
    """Ignore the count, because there are no metrics."""


class FailedObjects:
    """The objects that could not be handled: `reasons` by watch and name."""

    def __init__(self, count: Count = _uncounted) -> None:
        self._count = count
        self.reasons: dict[tuple[str, str], str] = {}

    @contextmanager
    def taking(self, watch: str, name: str) -> Iterator[None]:
        """Handle an object in the block; an error is recorded and does not leave the block."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a defect may cost one object, not the service
            self.note(watch, name, error)
        else:
            self.pop(watch, name)

    def pop(self, watch: str, name: str) -> None:
        """Forget the failure of an object, because it was handled."""
        self.reasons.pop((watch, name), None)

    def note(self, watch: str, name: str, error: Exception) -> None:
        """Record that an object could not be handled. Call it in the error's handler."""
        reason = f"{type(error).__name__}: {error}"[:_REASON_MAX]
        _log.error(
            "object_not_taken_in",
            exc_info=error,
            path=watch,
            key=name,
            reason=reason,
        )
        self._count(METRIC, watch)
        if len(self.reasons) < REMEMBERED_MAX:
            self.reasons[watch, name] = reason

    def forget(self, watch: str) -> None:
        """Forget the failures of a watch, because a list of all its objects follows."""
        self.reasons = {
            where: reason for where, reason in self.reasons.items() if where[0] != watch
        }

    def shown(self) -> list[str]:
        """Return a line for each of the first objects, and how many more there are."""
        lines = [
            f"{watch} {name}: not taken in, {reason}"
            for (watch, name), reason in islice(self.reasons.items(), SHOWN_MAX)
        ]
        more = len(self.reasons) - len(lines)
        return [*lines, f"{more} more objects were not taken in"] if more else lines
