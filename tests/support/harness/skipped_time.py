"""Skipped time: an event loop whose clock jumps to the next timer when nothing is ready.

It is for tests whose code waits for timers only, not for processes, sockets or other threads. The
order of callbacks and timers is that of a loop that waits. The loop waits like any other loop while
a thread of its executor runs, and when no timer is set.
"""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class _Selector(selectors.DefaultSelector):
    """A selector that does not wait; `skipped` are the seconds that it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0
        self.threads = 0
        """Calls of the executor that have not ended."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0 or self.threads:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.skipped += timeout
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """The loop. `time` is that of the machine and what was skipped, in seconds."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return super().time() + self._waits.skipped

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], T], *args: *Arguments
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._waits.threads += 1
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _future: asyncio.Future[Any]) -> None:
        self._waits.threads -= 1


def factories() -> Mapping[str, Callable[[], SkippingLoop]]:
    """Return the loop for the hook `pytest_asyncio_loop_factories` of a conftest.py."""
    return {"skipping": SkippingLoop}
