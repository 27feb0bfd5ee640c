"""Lanes: threads for calls that may never return; the process ends without them.

The threads of `concurrent.futures` are waited for when a process ends, whatever they do.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class WorkerThread:
    """One thread, which makes calls one after the other."""

    def __init__(self, name: str) -> None:
        """Start it."""
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._last: Future[Any] | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether a call has not returned yet."""
        return self._last is not None and not self._last.done()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Make a call after those before."""
        self._last = found = Future[Any]()
        self._calls.put((found, call))
        return found

    def close(self) -> None:
        """Let the thread end after the calls that it has."""
        self._calls.put(None)

    def _work(self) -> None:
        while (asked := self._calls.get()) is not None:
            future, call = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                found = call()
            except BaseException as error:  # noqa: BLE001 - it is told to who asked
                future.set_exception(error)
            else:
                future.set_result(found)
