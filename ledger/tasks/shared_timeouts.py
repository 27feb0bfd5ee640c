"""Shared timeouts: the deadlines of many waits, by one timer of the event loop.

`asyncio.timeout_at` starts and cancels a timer for each wait, and nearly all of these timers are
cancelled. Here one timer is due at the earliest deadline of the waits in progress.
"""

import asyncio
from types import TracebackType
from typing import Any, Final

COALESCED_SECONDS: Final = 0.05
"""Least time between two turns of the timer, so a wait may end so much after its deadline."""


class SharedTimeouts:
    """The waits of one event loop that have a deadline."""

    def __init__(self) -> None:
        self._waits: dict[TimeoutAt, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def at(self, until: float) -> "TimeoutAt":
        """Return a context that ends its task's wait with TimeoutError at loop time `until`."""
        return TimeoutAt(self, until)

    def add(self, wait: "TimeoutAt") -> None:
        """End this wait at its deadline, until it is removed."""
        self._waits[wait] = None
        if self._timer is None or wait.until < self._timer.when():
            self._schedule(asyncio.get_running_loop(), wait.until)

    def remove(self, wait: "TimeoutAt") -> None:
        """Forget a wait that has ended."""
        self._waits.pop(wait, None)

    def _schedule(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(when, self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the waits that are due, and schedule the next turn while any wait remains."""
        self._timer, now = None, loop.time()
        for wait in [wait for wait in self._waits if wait.until <= now]:
            self.remove(wait)
            wait.expire()
        if self._waits:
            earliest = min(wait.until for wait in self._waits)
            self._schedule(loop, max(earliest, now + COALESCED_SECONDS))


class TimeoutAt:
    """One wait; like the context of `asyncio.timeout_at`, and entered by `with`."""

    __slots__ = ("_cancelling", "_expired", "_task", "_timeouts", "until")

    def __init__(self, timeouts: SharedTimeouts, until: float) -> None:
        """`until` is loop time."""
        self.until = until
        self._timeouts, self._expired = timeouts, False
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0

    def __enter__(self) -> "TimeoutAt":
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a timeout is used outside a task")
        self._task, self._cancelling = task, task.cancelling()
        self._timeouts.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if not self._expired:
            self._timeouts.remove(self)
            return
        assert task is not None, "only a wait in progress expires"
        is_ours = task.uncancel() <= self._cancelling
        if is_ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

    def expire(self) -> None:
        """End the wait now."""
        self._expired = True
        if self._task is not None:
            self._task.cancel()
