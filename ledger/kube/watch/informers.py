"""Informers: endless watches that list again at intervals, and the failures that block
readiness."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, TypeVar

from ledger.kube.api.cluster_ports import Change, Changed, Interrupted, Listed, Reached
from ledger.kube.api.objects import ObjectMeta
from ledger.kube.watch.failed_objects import FailedObjects
from ledger.kube.watch.list_watch import watch_backoff

NOT_LISTED: Final = "not listed yet"

_ALL: Final = "as a whole"
_REASON_MAX: Final = 200

T = TypeVar("T")


class Informers:
    """The watches, and in `waiting` the reasons of those that do not work at the moment.

    Settlement needs every essential watch. Of any other watch it needs only the first attempt to
    list: a single kind that gpuledger may not read must not stop the whole service.
    """

    def __init__(self, recount_seconds: float, failures: FailedObjects | None = None) -> None:
        """Restart every watch with a list after `recount_seconds`."""
        self.failures = failures or FailedObjects()
        self.waiting: dict[str, str] = {}
        self._recount_seconds = recount_seconds
        self._turns: dict[str, asyncio.Timeout] = {}
        self._essential: set[str] = set()

    def expect(self, what: str, *, essential: bool = False) -> None:
        """Expect the first list of a watch."""
        self.waiting[what] = NOT_LISTED
        if essential:
            self._essential.add(what)

    def problems(self) -> list[str]:
        """Return the watches that block the ledger, with the reasons."""
        return [f"{what}: {why}" for what, why in self.waiting.items() if self._matters(what)]

    def warnings(self) -> list[str]:
        """Return the other watches that do not work, with the reasons."""
        lines = [f"{what}: {why}" for what, why in self.waiting.items() if not self._matters(what)]
        return [*lines, *self.failures.shown()]

    def has_synced(self, what: str) -> bool:
        """Return whether a watch was listed, or failed with a reason."""
        return self.waiting.get(what) != NOT_LISTED

    def relist(self, what: str) -> None:
        """Restart a watch with a list now."""
        turn = self._turns.get(what)
        if turn is not None and not turn.expired():
            turn.reschedule(asyncio.get_running_loop().time())

    async def follow(
        self,
        what: str,
        watch: Callable[[], AsyncGenerator[Change[T], None]],
        take: Callable[[Change[T]], Awaitable[None]],
    ) -> None:
        """Pass every change to `take`, and list again when a recount is due.

        A change that `take` cannot handle is recorded and skipped. A list that `take` cannot
        handle is repeated after a pause.
        """
        backoff = None
        while True:
            turn = asyncio.timeout(self._recount_seconds)
            try:
                async with turn, aclosing(watch()) as changes:
                    self._turns[what] = turn
                    async for change in changes:
                        if isinstance(change, Changed):
                            try:
                                await take(change)
                            except Exception as error:  # noqa: BLE001 - it costs this object only
                                self.failures.note(what, _name(change.object), error)
                            else:
                                if self.failures.reasons:
                                    self.failures.pop(what, _name(change.object))
                            self.waiting.pop(what, None)
                        else:
                            await self._take_other(what, change, take)
                        backoff = None
            except Exception as error:  # noqa: BLE001 - a defect may not cost the service
                if isinstance(error, TimeoutError) and turn.expired():
                    continue
                self._turns.pop(what, None)
                self.failures.note(what, _ALL, error)
                self.waiting[what] = f"its list cannot be handled: {error}"[:_REASON_MAX]
                backoff = backoff or watch_backoff(asyncio.sleep)
                await backoff.wait()

    async def _take_other(
        self,
        what: str,
        change: Listed[T] | Reached | Interrupted,
        take: Callable[[Change[T]], Awaitable[None]],
    ) -> None:
        """Pass a list, a bookmark or an interruption to `take`.

        An interruption is a problem, unless the resource is absent and so has no objects.
        """
        if isinstance(change, Listed):
            self.failures.forget(what)
        await take(change)
        if isinstance(change, Interrupted) and not change.absent:
            self.waiting[what] = change.reason
        else:
            self.waiting.pop(what, None)

    def _matters(self, what: str) -> bool:
        return what in self._essential or not self.has_synced(what)


def _name(item: object) -> str:
    """Return the name of an object, or of its cached form; "" without one."""
    meta = getattr(item, "metadata", None)
    meta = meta() if callable(meta) else meta
    return meta.full_name() if isinstance(meta, ObjectMeta) else ""
