"""Simulated processes: tasks that live and die together.

A killed process runs no more code, not even its `finally` blocks, as after SIGKILL. Cancelled tasks
would run them. Every task that a process starts, directly or not, belongs to it, because a task
inherits the context of its creator.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeVar

T = TypeVar("T")


class Process:
    """A process: alive until it is killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task that belongs to this process."""
        return asyncio.get_running_loop().create_task(work, context=_context_of(self))

    def kill(self) -> None:
        """Stop it between two of its steps, for good."""
        self.alive = False


def owner_of(context: Context) -> Process | None:
    """Return the process that a context belongs to, None for the world itself."""
    return context.get(_owner)


def outside(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a task that belongs to no process: a request that is on its way outlives its sender."""
    return asyncio.get_running_loop().create_task(work, context=_context_of(None))


def _context_of(process: Process | None) -> Context:
    context = copy_context()
    context.run(_owner.set, process)
    return context


_owner: Final[ContextVar[Process | None]] = ContextVar("process", default=None)
