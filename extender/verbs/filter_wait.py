"""The wait budget of filter: how long it waits for cards that are about to become free.

The scheduler reads the end of a pod at the same time as the ledger, asks once, perhaps too early,
and then not again until it is woken, seconds later (`scheduler_wakeup`). It asks about one pod at a
time, so that all pods wait while one does: waits must be few. When the scheduler retries many pods,
it asks about them one right after another. The wait for the first pod brings the ledger up to date,
so the others need no wait.
"""

from typing import Final

from extender.scheduler_api.scheduling_request import PODS_MAX, BoundedCache

FREED_SECONDS: Final = 1.0
"""How long filter waits for a pod with a preemption claim."""

FREED_EVERY_SECONDS: Final = 4.0
"""How long until there may be one more such wait: victims may take minutes to end."""

AGAIN_SECONDS: Final = 0.3
"""How long filter waits for a pod that fitted nowhere before: the scheduler asks again because the
cluster has changed."""

AGAIN_EVERY_SECONDS: Final = 1.0
"""How long until there may be one more such wait."""

WAITS_MAX: Final = 4
"""How many waits of one kind may follow one another at once."""


class FilterWaitBudget:
    """Grants waits for pods that fit nowhere; all times are of the loop, in seconds."""

    def __init__(self, now: float) -> None:
        """Start with all waits available."""
        self._freed = _Allowance(FREED_EVERY_SECONDS, now)
        self._again = _Allowance(AGAIN_EVERY_SECONDS, now)
        self._nowhere: BoundedCache[bool] = BoundedCache(PODS_MAX)

    def seconds_for(self, uid: str, now: float, *, is_claimed: bool) -> float:
        """Return how long to wait for a pod, which has a preemption claim if it `is_claimed`."""
        fitted_nowhere = uid in self._nowhere
        self._nowhere[uid] = True
        if is_claimed and self._freed.take(now):
            return FREED_SECONDS
        return AGAIN_SECONDS if fitted_nowhere and self._again.take(now) else 0.0


class _Allowance:
    """`WAITS_MAX` waits at once, and one more after each pause."""

    def __init__(self, pause: float, now: float) -> None:
        self._pause, self._counted = pause, now
        self._left = float(WAITS_MAX)

    def take(self, now: float) -> bool:
        """Take one; return whether there was one."""
        self._left = min(WAITS_MAX, self._left + (now - self._counted) / self._pause)
        self._counted = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
