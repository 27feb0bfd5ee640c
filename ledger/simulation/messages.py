"""Messages between simulated replicas: requests on subjects, as NATS carries them, and lost ones.

A `Line` stands where the forwarder and the command server of `ledger.log.forwarding` expect their
connection.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from ledger.log.port import Unreachable
from ledger.simulation.network import SeededFaults
from ledger.simulation.processes import Process

HOP_SECONDS_MAX: Final = 0.004
DEADLINE_SECONDS: Final = 2.0


class Message:
    """A request as its receiver gets it."""

    def __init__(self, data: bytes, answer: "asyncio.Future[bytes]") -> None:
        self.data = data
        self._answer = answer

    async def respond(self, payload: bytes) -> None:
        """Answer it; an answer to somebody who has given up goes nowhere."""
        if not self._answer.done():
            self._answer.set_result(payload)


Receive = Callable[[Message], Awaitable[None]]


class Exchange:
    """Who listens on which subject."""

    def __init__(self) -> None:
        self.listening: dict[str, tuple[Process, Receive]] = {}


class Line:
    """One process's line to the exchange, as bad as its way to the log."""

    def __init__(
        self, exchange: Exchange, process: Process, faults: SeededFaults, source: random.Random
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
        async with asyncio.timeout(deadline):
            await self._hop()
            process, receive = self._exchange.listening.get(subject, (None, None))
            if process is None or receive is None or not process.alive or self._is_lost():
                raise Unreachable(f"nobody answers on {subject}")
            answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            process.start(_deliver(receive, Message(payload, answer)))
            answered = await answer
            await self._hop()
            if self._is_lost():
                await asyncio.sleep(deadline)
            return answered

    async def _hop(self) -> None:
        await asyncio.sleep(self._source.random() * HOP_SECONDS_MAX)

    def _is_lost(self) -> bool:
        return self._faults.cut_off or self._source.random() < self._faults.weather.trouble


async def _deliver(receive: Receive, message: Message) -> None:
    await receive(message)
