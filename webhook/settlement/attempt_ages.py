"""Ages: for how long this replica has seen each open attempt, on its own monotonic clock.

Monotonic clocks do not travel: after a restart or a change of owner every age starts from zero.
A hold that is raised starts again too, because another request may still write at its base.
"""

from collections.abc import Iterator

import msgspec

from ledger.core.model.events import AnyEvent, Committed, Observed, Raised, Released, Reserved
from webhook.settlement.settlement_session import RECOUNTED, WATCHED


class OpenAttempt(msgspec.Struct, frozen=True, gc=False):
    """Where an open attempt is: `namespace` is qualified."""

    namespace: str
    key: str
    uid: str
    base: int


class AttemptAges:
    """Open attempts, the one first seen longest ago first. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: dict[OpenAttempt, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def start(self, attempt: OpenAttempt, now: float) -> None:
        """Count an attempt's age from now on, also when it had one."""
        self._since.pop(attempt, None)
        self._since[attempt] = now

    def start_unless_known(self, attempt: OpenAttempt, now: float) -> None:
        """Count an attempt's age from now on unless that has begun."""
        self._since.setdefault(attempt, now)

    def follow(self, event: AnyEvent, now: float) -> None:
        """Take note of what an event opens, raises or ends."""
        if isinstance(event, Reserved | Raised):
            self.start(OpenAttempt(event.namespace, event.key, event.uid, event.base), now)
        elif isinstance(event, Released | Committed | Observed):
            attempt = OpenAttempt(event.namespace, event.key, event.uid, event.base)
            self._since.pop(attempt, None)
        if isinstance(event, Observed) and event.actor not in (WATCHED, RECOUNTED):
            self._doubt(event, now)

    def _doubt(self, event: Observed, now: float) -> None:
        """Have an object looked for that a review has shown, as an attempt would be.

        The review may have waited while the object was deleted, and that was told of something
        that the ledger did not know: nobody will tell it again.
        """
        self.start(OpenAttempt(event.namespace, event.key, event.uid, event.version), now)

    def of(self, attempt: OpenAttempt, now: float) -> float:
        """Return an attempt's age in seconds, 0 when it is not open."""
        return now - self._since.get(attempt, now)

    def at_least(self, seconds: float, now: float) -> Iterator[OpenAttempt]:
        """Yield the attempts of that age, oldest first. Change nothing while it runs."""
        for attempt, since in self._since.items():
            if now - since < seconds:
                return
            yield attempt

    def end(self, attempt: OpenAttempt) -> None:
        """Forget an attempt that is no longer open."""
        self._since.pop(attempt, None)
