"""Open attempt ages: how long this replica has seen each open attempt, by its monotonic clock.

Monotonic clocks of two processes are not comparable, so every age starts from zero after a restart
or a change of the active replica. Raising a hold restarts its age too, because another request may
still write at its base.
"""

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from ledger.core.model.events import (
    AnyEvent,
    Committed,
    Observed,
    Raised,
    Released,
    Reserved,
)
from ledger.tasks.periodic import CooperativeYield
from webhook.settlement.charge_settlement_session import RECOUNTED, WATCHED, SettlementSession

Attempt = tuple[str, int]
"""`(uid, base)`: one possible write of a key."""

Proven = Callable[[Attempt], bool]
"""Whether an attempt was older than any request can be when a list began."""


class OpenAttempt(msgspec.Struct, frozen=True, gc=False):
    """The identity of an open attempt. `namespace` is qualified."""

    namespace: str
    key: str
    uid: str
    base: int


class AttemptAges:
    """Open attempts, oldest first. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: dict[OpenAttempt, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def start(self, attempt: OpenAttempt, now: float) -> None:
        """Start an attempt's age at zero, or restart it."""
        self._since.pop(attempt, None)
        self._since[attempt] = now

    def start_unless_known(self, attempt: OpenAttempt, now: float) -> None:
        """Start an attempt's age at zero unless it has one."""
        self._since.setdefault(attempt, now)

    def follow(self, event: AnyEvent, now: float) -> None:
        """Take note of the attempts that an event opens, raises or ends."""
        if isinstance(event, Reserved | Raised):
            self.start(OpenAttempt(event.namespace, event.key, event.uid, event.base), now)
        elif isinstance(event, Released | Committed | Observed):
            attempt = OpenAttempt(event.namespace, event.key, event.uid, event.base)
            self._since.pop(attempt, None)
        if isinstance(event, Observed) and event.actor not in (WATCHED, RECOUNTED):
            self._doubt(event, now)

    def _doubt(self, event: Observed, now: float) -> None:
        """Have the absence of a reviewed object checked, as that of an attempt.

        The object may have been deleted while the review waited. The deletion was then observed
        before the ledger had an entry, and no watch reports it again.
        """
        self.start(OpenAttempt(event.namespace, event.key, event.uid, event.version), now)

    def of(self, attempt: OpenAttempt, now: float) -> float:
        """Return an attempt's age in seconds, 0 if it is not open."""
        return now - self._since.get(attempt, now)

    def at_least(self, seconds: float, now: float) -> Iterator[OpenAttempt]:
        """Yield the attempts of at least this age, oldest first; change no age meanwhile."""
        for attempt, since in self._since.items():
            if now - since < seconds:
                return
            yield attempt

    def end(self, attempt: OpenAttempt) -> None:
        """Forget an attempt that is no longer open."""
        self._since.pop(attempt, None)


async def start_open_attempt_ages(
    session: SettlementSession, ages: AttemptAges, prefix: str = ""
) -> None:
    """Start the age of every open attempt with this prefix of keys that has none.

    A session begins with this, and so does settlement after a gap of the watch.
    """
    stride, clock = CooperativeYield(), asyncio.get_running_loop().time
    for namespace in session.namespaces():
        await stride.step()
        for key in session.keys(namespace):
            await stride.step()
            if not key.startswith(prefix) or not session.settles(key):
                continue
            entry = session.entry(namespace, key)
            for hold in entry.holds if entry is not None else ():
                ages.start_unless_known(OpenAttempt(namespace, key, hold.uid, hold.base), clock())
