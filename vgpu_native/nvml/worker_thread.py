"""Worker thread: runs calls that may never return. The process ends without waiting for the thread.

The threads of `concurrent.futures` delay that end, because the interpreter joins them at exit.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class WorkerThread:
    """One daemon thread, which runs calls one after the other."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._last: Future[Any] | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether a call has not returned yet."""
        return self._last is not None and not self._last.done()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Queue a call; return the future of its result."""
        self._last = future = Future[Any]()
        self._calls.put((future, call))
        return future

    def close(self) -> None:
        """Stop the thread after its queued calls."""
        self._calls.put(None)

    def _work(self) -> None:
        while (queued := self._calls.get()) is not None:
            future, call = queued
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - the future carries it to the caller
                future.set_exception(error)
            else:
                future.set_result(result)
