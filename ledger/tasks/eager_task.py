"""Eager task: a coroutine that runs at once up to its first wait, for one call per request.

`asyncio.Task` first waits for its turn in the event loop, and for another turn to report its end.
An eager task does neither; a request that waits for nothing ends in its first step. Python 3.12 has
eager tasks of its own, which can replace this one when 3.11 is no longer supported. It follows
https://docs.python.org/3/library/asyncio-extending.html: `asyncio.current_task` returns it, and it
can be cancelled, so `asyncio.timeout` works in its coroutine. As in `asyncio.Task`, the coroutine
has a copy of the context variables.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class EagerTask(Generic[T]):
    """Runs one coroutine. `done` is called once, with its result or its error."""

    __slots__ = (
        "__weakref__",
        "_cancel_requests",
        "_context",
        "_coroutine",
        "_done",
        "_loop",
        "_must_cancel",
        "_waited",
    )

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        done: Callable[["EagerTask[T]", T | None, BaseException | None], None],
    ) -> None:
        """Prepare a coroutine in the running event loop; `start` runs it."""
        self._coroutine, self._done = coroutine, done
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._waited: asyncio.Future[Any] | None = None
        self._must_cancel = False
        self._cancel_requests = 0

    def start(self) -> None:
        """Run up to the first wait; soon, where another task is running now."""
        if asyncio.current_task(self._loop) is None:
            self._step(None)
        else:
            self._loop.call_soon(self._step, None)

    def cancel(self, msg: str | None = None) -> bool:
        """Raise CancelledError in the coroutine; see `asyncio.Task.cancel`."""
        self._cancel_requests += 1
        if self._waited is None or not self._waited.cancel(msg):
            self._must_cancel = True
        return True

    def cancelling(self) -> int:
        """Return the number of requests to cancel; see `asyncio.Task.cancelling`."""
        return self._cancel_requests

    def uncancel(self) -> int:
        """Take one request back, and return how many remain; see `asyncio.Task.uncancel`."""
        self._cancel_requests = max(0, self._cancel_requests - 1)
        return self._cancel_requests

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop."""
        return self._loop

    def _step(self, error: BaseException | None) -> None:
        """Run up to the next wait, or to the end."""
        if self._must_cancel:
            self._must_cancel = False
            if not isinstance(error, asyncio.CancelledError):
                error = asyncio.CancelledError()
        asyncio._enter_task(self._loop, self)  # type: ignore[arg-type]  # as documented
        try:
            if error is None:
                waited = self._context.run(self._coroutine.send, None)
            else:
                waited = self._context.run(self._coroutine.throw, error)
        except StopIteration as end:
            result, failure = end.value, None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as raised:  # noqa: BLE001 - the caller gets every error
            result, failure = None, raised
        else:
            self._wait_for(waited)
            return
        finally:
            asyncio._leave_task(self._loop, self)  # type: ignore[arg-type]  # as documented
        self._done(self, result, failure)

    def _wait_for(self, waited: Any) -> None:
        """Continue when a future is done; without one, in the next turn of the event loop."""
        if waited is None:
            self._loop.call_soon(self._step, None)
        elif getattr(waited, "_asyncio_future_blocking", None):
            waited._asyncio_future_blocking = False
            self._waited = waited
            waited.add_done_callback(self._wake)
            if self._must_cancel and waited.cancel():
                self._must_cancel = False
        else:
            error = RuntimeError(f"the coroutine awaits {waited!r} instead of a future")
            self._loop.call_soon(self._step, error)

    def _wake(self, waited: "asyncio.Future[Any]") -> None:
        self._waited = None
        try:
            waited.result()
        except BaseException as error:  # noqa: BLE001 - the coroutine gets every error
            self._step(error)
        else:
            self._step(None)
