"""Patience: for how long filter waits for room that the ledger may be about to learn of.

The scheduler hears of the end of a pod when the ledger does, asks once, perhaps too early, and then
not again for minutes. But it asks about one pod at a time, so that all wait while one does: waits
are few. When it asks about many pods again, it does so at once, and who comes after the first ones
finds the ledger up to date.
"""

from typing import Final

from extender.scheduler_api.scheduling_request import PODS_MAX, BoundedCache

FREED_SECONDS: Final = 1.0
"""How long filter waits for a pod that others were evicted for."""

FREED_EVERY_SECONDS: Final = 4.0
"""How long until there may be one more such wait: victims may take minutes to end."""

AGAIN_SECONDS: Final = 0.3
"""How long it waits for a pod that fitted nowhere before and is asked about once more: something
has happened."""

AGAIN_EVERY_SECONDS: Final = 1.0
"""How long until there may be one more such wait."""

WAITS_MAX: Final = 4
"""How many waits of one kind may follow one another at once."""


class FilterWaitBudget:
    """Grants waits for pods that fit nowhere; all times are of the loop, in seconds."""

    def __init__(self, now: float) -> None:
        """Nobody has waited yet."""
        self._freed = _Allowance(FREED_EVERY_SECONDS, now)
        self._again = _Allowance(AGAIN_EVERY_SECONDS, now)
        self._nowhere: BoundedCache[bool] = BoundedCache(PODS_MAX)

    def seconds_for(self, uid: str, now: float, *, is_claimed: bool) -> float:
        """Return how long to wait for a pod, which cards are kept for if it `is_claimed`."""
        has_synced = uid in self._nowhere
        self._nowhere[uid] = True
        if is_claimed and self._freed.take(now):
            return FREED_SECONDS
        return AGAIN_SECONDS if has_synced and self._again.take(now) else 0.0


class _Allowance:
    """So many waits at once, and one more after each pause."""

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
