"""Fixed-rate load: commands are submitted when they are due, without waiting for answers."""

import asyncio
import time
from typing import Final

from ledger.log.ledger_port import Accepted, Ledger
from tests.bench.harness import ledgers
from tests.bench.load.send_moments import Outcome, SendMoments

NAMESPACES: Final = 1_000


class FixedRateLoad:
    """Reserves and releases in turn, so many per second. `seconds` are the times to an answer."""

    def __init__(self, ledger: Ledger, per_second: float, client: int = 0) -> None:
        """Load a ledger; clients with different numbers do not touch each other's pods."""
        self._ledger = ledger
        self._per_second = per_second
        self._client = client
        self._submitted = self._last = 0
        self._pairs: set[asyncio.Task[None]] = set()
        self.seconds: list[float] = []
        self.refused = 0

    async def run(self, seconds: float) -> None:
        """Load for so many seconds, then wait for the last answers."""
        self._last += int(seconds * self._per_second / 2)
        await SendMoments(self._per_second / 2, self._submit_pair).run()
        await asyncio.gather(*self._pairs)

    def _submit_pair(self, due: float) -> Outcome:
        if self._submitted == self._last:
            return Outcome.LAST
        pair = asyncio.create_task(self._pair(self._submitted, due))
        self._submitted += 1
        self._pairs.add(pair)
        pair.add_done_callback(self._pairs.discard)
        return Outcome.SENT

    async def _pair(self, number: int, due: float) -> None:
        hold = ledgers.reserve(ledgers.namespace(number % NAMESPACES), self._client, number)
        for command in (hold, ledgers.release(hold)):
            answer = await self._ledger.submit(command)
            self.refused += not isinstance(answer, Accepted)
            now = time.perf_counter()
            self.seconds.append(now - due)
            due = now
