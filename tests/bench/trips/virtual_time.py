"""An event loop whose time passes only when nothing else can happen.

Timers fire in their order and never in the middle of other work, so a profile of the same requests
is the same in each run, however slow the machine is.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

IDLE_SECONDS = 1e-6
"""A sleep of so long ends after everything that is ready has run."""


class Deadlock(Exception):
    """No callback is ready and no timer is set."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop without sockets, at `time` seconds since it was made."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Return the virtual seconds that have passed."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


class _Selector(selectors.SelectSelector):
    """Waits for nothing: where a loop would wait, its time advances."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("no callback is ready and no timer is set")
        if timeout > 0:
            self._loop.advance(timeout)
        return super().select(0)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


async def idle() -> None:
    """Wait until everything that is ready has run."""
    await asyncio.sleep(IDLE_SECONDS)
