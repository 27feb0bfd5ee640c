"""Loop: an event loop with virtual time, in which the seed chooses the next callback.

Nothing sleeps or waits for I/O. The random source chooses one of the ready callbacks, so a
campaign of seeds explores interleavings. Time jumps to the next timer when no callback is ready.
Callbacks of killed processes are dropped.
"""

import asyncio
import heapq
import random
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, TypeVar, TypeVarTuple

from simulation.engine.processes import Process, owner_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Deadlock(Exception):
    """Nothing is ready and no timer is set: all waiting tasks wait for ever."""


class Runaway(Exception):
    """More steps than any sound run takes: something goes round in circles."""


class VirtualTask(asyncio.Task[Any]):
    """A task that hashes by its number, so that no order depends on where objects lie in memory."""

    def __init__(self, number: int, *args: Any, **kwargs: Any) -> None:
        self._number = number
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


_Step = tuple[asyncio.Handle, Callable[..., object], tuple[Any, ...], Context, Process | None]


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop. `steps` counts the callbacks that ran, `problems` lists unhandled exceptions."""

    def __init__(self, source: random.Random, *, steps_max: int) -> None:
        self.steps = 0
        self.problems: list[str] = []
        self._source = source
        self._steps_max = steps_max
        self._now = 0.0
        self._made = 0
        self._ready: list[_Step] = []
        self._dropped: list[_Step] = []
        self._timers: list[tuple[float, int, _Step]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._burying = False
        self._closed = False

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until `main` ends, then end everything else. Raises Deadlock, Runaway.

        A loop runs once.
        """
        hooks = sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=self._generators.append, finalizer=None)
        try:
            task = self.create_task(main)
            self._run_to_end_of(task)
            result: T = task.result()
            return result
        finally:
            self._bury()
            sys.set_asyncgen_hooks(firstiter=hooks.firstiter, finalizer=hooks.finalizer)
            asyncio._set_running_loop(None)
            self._closed = True

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Make a callback ready."""
        if context is None:  # an empty context is false, too
            context = copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((handle, callback, args, context, owner_of(context)))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Make a callback ready after so many virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Make a callback ready at a virtual time."""
        if context is None:  # an empty context is false, too
            context = copy_context()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        step = (timer, callback, args, context, owner_of(context))
        heapq.heappush(self._timers, (when, self._number(), step))
        return timer

    def create_future(self) -> "asyncio.Future[Any]":
        """Make a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[Any]":
        """Make a task of this loop."""
        task = VirtualTask(self._number(), coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note an unhandled exception."""
        if not self._burying:
            self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        """Return False: debug mode looks at the real clock."""
        return False

    def is_running(self) -> bool:
        """Return whether the loop has not ended yet."""
        return not self._closed

    def is_closed(self) -> bool:
        """Return whether the loop has ended."""
        return self._closed

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when its time comes."""

    def _number(self) -> int:
        self._made += 1
        return self._made

    def _run_to_end_of(self, main: "asyncio.Task[Any]") -> None:
        while not main.done():
            if not self._ready:
                self._advance()
            self._step()
            if self.steps > self._steps_max:
                raise Runaway(f"{self.steps} steps and no end, at {self._now:.3f} s")

    def _advance(self) -> None:
        """Let time pass to the next timers, all of those that are due together."""
        timers = self._timers
        while timers and _is_void(timers[0][2]):
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(f"nothing can happen any more at {self._now:.3f} s")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])

    def _step(self) -> None:
        """Run one of the ready callbacks, whichever the source picks."""
        ready = self._ready
        last = len(ready) - 1
        if last > 0:
            picked = int(self._source.random() * (last + 1))
            ready[picked], ready[last] = ready[last], ready[picked]
        step = ready.pop()
        if _is_void(step):
            self._dropped.append(step)
            return
        self.steps += 1
        _, callback, args, context, _ = step
        try:
            context.run(callback, *args)
        except Exception as error:  # noqa: BLE001 - like any loop, it survives them
            self.call_exception_handler({"message": f"in {callback!r}", "exception": error})

    def _bury(self) -> None:
        """End all tasks, those of killed processes too, so that nothing is left for the collector.

        Their results do not matter: the run is over.
        """
        self._burying = True
        self._ready += self._dropped
        for _ in range(CLOSING_ROUNDS_MAX):
            waiting = [task for task in self._tasks if not task.done()]
            if not waiting:
                break
            for task in waiting:
                task.cancel()
            self._run_ready()
        for generator in self._generators:
            self.create_task(_close(generator))
        for _ in range(CLOSING_ROUNDS_MAX):
            self._run_ready()
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.exception()  # so that it counts as retrieved
        self._ready, self._dropped, self._timers, self._tasks = [], [], [], []

    def _run_ready(self) -> None:
        """Run what is ready, of killed processes too."""
        steps, self._ready = self._ready, []
        for handle, callback, args, context, _ in steps:
            if not handle.cancelled():
                context.run(callback, *args)


CLOSING_ROUNDS_MAX = 50
"""How often a task is cancelled at the end: some answer the first cancellation with more work."""


def _is_void(step: _Step) -> bool:
    """Return whether a step was cancelled, or belongs to a process that was killed."""
    process = step[4]
    return step[0].cancelled() or (process is not None and not process.alive)


async def _close(generator: AsyncGenerator[Any, Any]) -> None:
    await generator.aclose()
