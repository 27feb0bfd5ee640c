"""Messages between simulated replicas: requests on subjects, as NATS carries them, and lost ones.

A `MessageClient` replaces the connection that the forwarder and the command server of
`ledger.log.peers.forwarding` expect.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from ledger.log.log_port import Unreachable
from simulation.engine.faulty_log import SeededFaults
from simulation.engine.processes import Process, outside

HOP_SECONDS_MAX: Final = 0.004
DEADLINE_SECONDS: Final = 2.0
LATE_SHARE: Final = 0.12
LATE_SECONDS_MAX: Final = 3.0
"""Some messages are late even in calm weather, later than their senders wait."""


class Message:
    """A request as its receiver gets it."""

    def __init__(self, data: bytes, answer: "asyncio.Future[bytes]") -> None:
        self.data = data
        self._answer = answer

    async def respond(self, payload: bytes) -> None:
        """Answer the message; an answer to a sender that gave up is lost."""
        if not self._answer.done():
            self._answer.set_result(payload)

    def refuse(self, problem: Exception) -> None:
        """Report to the sender that the message was not taken."""
        if not self._answer.done():
            self._answer.set_exception(problem)


Receive = Callable[[Message], Awaitable[None]]


class MessageBroker:
    """The subscriptions, by subject."""

    def __init__(self) -> None:
        self.listening: dict[str, tuple[Process, Receive]] = {}


class MessageClient:
    """One process's line to the exchange, as bad as its way to the log."""

    def __init__(
        self, exchange: MessageBroker, process: Process, faults: SeededFaults, source: random.Random
    ) -> None:
        self._exchange = exchange
        self._process = process
        self._faults = faults
        self._source = source

    async def subscribe(self, subject: str, receive: Receive) -> None:
        """Listen on a subject; the last one to do so gets its messages."""
        self._exchange.listening[subject] = self._process, receive

    async def unsubscribe(self, subject: str) -> None:
        """Listen no more."""
        self._exchange.listening.pop(subject, None)

    async def request(
        self, subject: str, payload: bytes, *, deadline: float = DEADLINE_SECONDS
    ) -> bytes:
        """Send a request and return its answer. Raises Unreachable, TimeoutError."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(deadline):
            outside(self._carry(subject, Message(payload, answer)))
            answered = await answer
            await self._hop()
            if self._is_lost():
                await asyncio.sleep(deadline)
            return answered

    async def _carry(self, subject: str, message: Message) -> None:
        """Bring a message to its subscriber; it may arrive long after its sender gave up."""
        await self._hop()
        if self._source.random() < max(LATE_SHARE, self._faults.weather.slow):
            await asyncio.sleep(self._source.random() * LATE_SECONDS_MAX)
        process, receive = self._exchange.listening.get(subject, (None, None))
        if process is None or receive is None or not process.alive or self._is_lost():
            message.refuse(Unreachable(f"nobody answers on {subject}"))
        else:
            process.start(_deliver(receive, message))

    async def _hop(self) -> None:
        await asyncio.sleep(self._source.random() * HOP_SECONDS_MAX)

    def _is_lost(self) -> bool:
        return self._faults.cut_off or self._source.random() < self._faults.weather.trouble


async def _deliver(receive: Receive, message: Message) -> None:
    await receive(message)
