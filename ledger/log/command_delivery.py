"""Command delivery: settlement's commands wait in a bounded queue, and each is sent to the ledger
until it is decided, those of one key in order.

A ledger that is overloaded or unreachable gets the same command again later. When the queues are
full, senders wait, the watch falls behind, and in the end it lists again. So no change is lost, and
no queue grows without bound.
"""

import asyncio
import random
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from ledger.core.model.commands import (
    AnyCommand,
    CloseAccount,
    Describe,
    RegisterCards,
    RemoveNode,
    SetLimits,
)
from ledger.core.model.denials import Denial, Reason, sentence
from ledger.log.ledger_port import Ledger
from ledger.tasks.backoff import Backoff

WORKERS: Final = 128
"""Commands on their way at the same time; those of one key share a worker."""

WORKER_COMMANDS_MAX: Final = 64
"""Commands that wait for one worker."""

SUBMIT_SECONDS: Final = 30.0
"""Deadline of one submission, well above the ledger's own."""

RETRY_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 5.0

_AGAIN: Final = frozenset(
    {Reason.OVERLOADED, Reason.LOG_FULL, Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_STOPPED}
)
_log: Final = structlog.get_logger("ledger.log")

Address = tuple[str, str]

WorkerQueue = asyncio.Queue[AnyCommand | asyncio.Event]
"""Commands in order; an event is set as soon as all commands before it are decided."""


class CommandQueue:
    """Bounded delivery to a ledger. `run` delivers; when it is cancelled, waiting commands are
    dropped."""

    def __init__(self, ledger: Ledger, jitter: Callable[[], float] = random.random) -> None:
        """`jitter` draws from 0 to 1, so that many replicas do not retry in step."""
        self._ledger = ledger
        self._jitter = jitter
        self._queues: list[WorkerQueue] = [
            asyncio.Queue(WORKER_COMMANDS_MAX) for _ in range(WORKERS)
        ]
        self._pending: Counter[Address] = Counter()

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for queue in self._queues:
                workers.create_task(self._serve(queue))

    async def send(self, command: AnyCommand) -> None:
        """Queue a command behind the earlier ones of its key; wait while its queue is full."""
        address = _address(command)
        self._pending[address] += 1
        try:
            await self._queues[_worker_of(address)].put(command)
        except asyncio.CancelledError:
            # The cancelled sender lists again, so this command is not pending.
            self._forget(address)
            raise

    def is_pending(self, namespace: str, key: str) -> bool:
        """Return whether commands of a key are still on their way: its state is about to change."""
        return (namespace, key) in self._pending

    async def flush(self) -> None:
        """Wait until all commands sent before this call are decided."""
        marks = []
        for worker in list(dict.fromkeys(map(_worker_of, self._pending))):
            marks.append(asyncio.Event())
            await self._queues[worker].put(marks[-1])
        for mark in marks:
            await mark.wait()

    async def _serve(self, queue: WorkerQueue) -> None:
        while True:
            item = await queue.get()
            if isinstance(item, asyncio.Event):
                item.set()
                continue
            await self._deliver(item)
            self._forget(_address(item))

    async def _deliver(self, command: AnyCommand) -> None:
        backoff = None
        while (denial := await self._submit(command)) is not None:
            if denial.reason not in _AGAIN:
                _log.error("settlement_refused", reason=sentence(denial))
                return
            backoff = backoff or Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX, jitter=self._jitter)
            await backoff.wait()

    async def _submit(self, command: AnyCommand) -> Denial | None:
        try:
            async with asyncio.timeout(SUBMIT_SECONDS):
                answer = await self._ledger.submit(command)
        except TimeoutError:
            return Denial(Reason.LEDGER_UNAVAILABLE, "no answer in time", transient=True)
        return answer if isinstance(answer, Denial) else None

    def _forget(self, address: Address) -> None:
        if self._pending[address] > 1:
            self._pending[address] -= 1
        else:
            del self._pending[address]


def _worker_of(address: Address) -> int:
    """Return the worker of an address. Not hash(), which depends on the process."""
    return zlib.crc32("/".join(address).encode()) % WORKERS


def _address(command: AnyCommand) -> Address:
    """Return the subject of a command: commands of one address keep their order."""
    if isinstance(command, SetLimits | CloseAccount):
        return "", command.account
    if isinstance(command, Describe):
        return command.subject, ""
    if isinstance(command, RegisterCards | RemoveNode):
        return "", command.node
    return getattr(command, "namespace", ""), getattr(command, "key", "")
