"""Body budget: the bytes of request bodies in memory, bounded all together.

A body counts from its first byte until its request is answered. Where the next bytes find no room,
the body that has been arriving for longest gives way, once that has lasted `ARRIVAL_SECONDS`; a
body that arrived whole stays. So senders that never finish cannot keep others out, and senders
that are quick wait for one another.
"""

import asyncio
from typing import Final

ARRIVAL_SECONDS: Final = 2.0
"""How long a body may take to arrive while others wait for its room."""


class BudgetShare:
    """One request's share of the budget, held for the time of a `with` block."""

    __slots__ = ("_budget", "began", "bytes", "gave_way", "timeout")

    def __init__(self, budget: "BodyBudget") -> None:
        """Hold nothing yet; `BodyBudget.holding` makes these."""
        self._budget = budget
        self.bytes = 0
        self.began = 0.0
        self.timeout: asyncio.Timeout | None = None
        """The timeout that ends the reading of this body; set while it is read."""
        self.gave_way = False

    def __enter__(self) -> "BudgetShare":
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.arrived(self)
        self._budget.give_back(self, self.bytes)

    async def take(self, size: int, *, more: bool) -> None:
        """Take the next bytes of the body; `more`: others follow.

        Waits for room. The reader's deadline ends that, and so does giving way: both end
        `timeout`, inside of which this has to be called.
        """
        if more or not self._budget.takes_at_once(self, size):
            await self._budget.take(self, size, more=more)

    def arrived(self) -> None:
        """Note that the body is whole, or is not read any further."""
        self._budget.arrived(self)

    def give_back(self, size: int) -> None:
        """Give back some of the bytes that were taken."""
        self._budget.give_back(self, size)


class BodyBudget:
    """Shares out at most `bytes_max` bytes. `bytes` is how many are taken."""

    def __init__(self, bytes_max: int) -> None:
        """Bound the bodies of these requests; the largest single one has to fit."""
        self._bytes_max = bytes_max
        self._arriving: dict[BudgetShare, None] = {}
        self._freed = asyncio.Event()
        self.bytes = 0

    def holding(self) -> BudgetShare:
        """Return a share to be held until the request is answered."""
        return BudgetShare(self)

    def takes_at_once(self, held: BudgetShare, size: int) -> bool:
        """Take all of a body that needs no waiting; most arrive in one part."""
        if self.bytes + size > self._bytes_max or held in self._arriving:
            return False
        self.bytes += size
        held.bytes += size
        return True

    async def take(self, held: BudgetShare, size: int, *, more: bool) -> None:
        """Take bytes for a share; see `BudgetShare.take`."""
        if more and held not in self._arriving:
            held.began = asyncio.get_running_loop().time()
            self._arriving[held] = None
        while self.bytes + size > self._bytes_max:
            await self._make_room()
        self.bytes += size
        held.bytes += size

    def arrived(self, held: BudgetShare) -> None:
        """Note that a body is whole, or is not read any more."""
        self._arriving.pop(held, None)

    def give_back(self, held: BudgetShare, size: int) -> None:
        """Free some of a body's bytes."""
        if size:
            self.bytes -= size
            held.bytes -= size
            self._freed.set()

    async def _make_room(self) -> None:
        """Let the oldest arriving body give way, or wait until something is freed."""
        now = asyncio.get_running_loop().time()
        oldest = next(iter(self._arriving), None)
        left = None if oldest is None else oldest.began + ARRIVAL_SECONDS - now
        if oldest is not None and left is not None and left <= 0:
            self._give_way(oldest, now)
            # Its reader is cancelled at its next turn; what it held is free at once.
            await asyncio.sleep(0)
            return
        self._freed.clear()
        try:
            async with asyncio.timeout(left):
                await self._freed.wait()
        except TimeoutError:
            return

    def _give_way(self, held: BudgetShare, now: float) -> None:
        self.arrived(held)
        self.give_back(held, held.bytes)
        held.gave_way = True
        if held.timeout is not None:
            held.timeout.reschedule(now)
