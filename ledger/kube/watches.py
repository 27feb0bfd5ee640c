"""Watches: taken in without end, listed anew from time to time, and what they cannot tell."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Final, TypeVar

from ledger.kube.port import Change, Interrupted

NOT_LISTED: Final = "not listed yet"

T = TypeVar("T")


class Watches:
    """What is watched and cannot be told at the moment, with the reasons: `waiting`.

    Without what is essential nothing can be settled. Of anything else it matters that it was tried
    to list it; a single kind that may not be read must not keep the whole service from serving.
    """

    def __init__(self, recount_seconds: float) -> None:
        """Begin every watch anew with a list after so many seconds."""
        self.waiting: dict[str, str] = {}
        self._recount_seconds = recount_seconds
        self._turns: dict[str, asyncio.Timeout] = {}
        self._essential: set[str] = set()

    def expect(self, what: str, *, essential: bool = False) -> None:
        """Say that something is to be listed that was not yet."""
        self.waiting[what] = NOT_LISTED
        if essential:
            self._essential.add(what)

    def problems(self) -> list[str]:
        """Return what keeps the ledger from knowing what matters most, with the reasons."""
        return [f"{what}: {why}" for what, why in self.waiting.items() if self._matters(what)]

    def warnings(self) -> list[str]:
        """Return what else cannot be told, with the reasons."""
        return [f"{what}: {why}" for what, why in self.waiting.items() if not self._matters(what)]

    def was_told(self, what: str) -> bool:
        """Return whether something was listed, or it was told why it cannot be."""
        return self.waiting.get(what) != NOT_LISTED

    def begin_anew(self, what: str) -> None:
        """Have a watch begin with a list now, before its time."""
        turn = self._turns.get(what)
        if turn is not None and not turn.expired():
            turn.reschedule(asyncio.get_running_loop().time())

    async def follow(
        self,
        what: str,
        watch: Callable[[], AsyncGenerator[Change[T], None]],
        take: Callable[[Change[T]], Awaitable[None]],
    ) -> None:
        """Take every change, and begin anew with a list when a recount is due."""
        while True:
            with suppress(TimeoutError):
                async with (
                    asyncio.timeout(self._recount_seconds) as turn,
                    aclosing(watch()) as changes,
                ):
                    self._turns[what] = turn
                    async for change in changes:
                        await take(change)
                        self._note(what, change)

    def _matters(self, what: str) -> bool:
        return what in self._essential or not self.was_told(what)

    def _note(self, what: str, change: Change[T]) -> None:
        """Remember whether the cluster tells us anything; what is not served has no objects."""
        if isinstance(change, Interrupted) and not change.absent:
            self.waiting[what] = change.reason
        else:
            self.waiting.pop(what, None)
