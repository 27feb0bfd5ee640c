"""Storing one record at its position, whatever becomes of the append's acknowledgement.

An append without an answer may have been stored or not; reading the position shows which. It holds
our record, another writer's record, or nothing yet.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ledger.log.port import Ambiguous, Conflict, Log, LogError, Lost, Unreachable, Unwritable
from ledger.log.writer.observer import Observer
from ledger.log.writer.writer_limits import WriterSettings


class _Found:
    """What was found out while an append waits."""

    __slots__ = ("limit", "task", "trouble")

    def __init__(self) -> None:
        self.trouble = ""
        self.limit: asyncio.Timeout | None = None
        self.task: asyncio.Task[None] | None = None


class Storing:
    """Stores records of one writer in one log."""

    def __init__(
        self,
        log: Log,
        settings: WriterSettings,
        observer: Observer,
        recognise: Callable[[], Awaitable[None]],
        lose_sight: Callable[[LogError], None],
    ) -> None:
        """`recognise` checks that the log is the one that was seen; see `Writer`."""
        self._log, self._settings, self._observer = log, settings, observer
        self._recognise, self._lose_sight = recognise, lose_sight

    async def store(self, payload: bytes, position: int) -> bool:
        """Store a record at a position; False when another one stands there.

        Raises Full, TooLarge, Unreachable, Lost, and Unwritable when the log can be read and stores
        nothing. Ends within `command_seconds_max`, or the append's own deadline if that is longer.
        """
        until = asyncio.get_running_loop().time() + self._settings.command_seconds_max
        try:
            return await self.send(payload, position)
        except Ambiguous as error:
            self._observer.ambiguous()
            return await self._find_out(payload, position, until, error)

    async def send(self, payload: bytes, position: int) -> bool:
        """Append a record once; False when another one stands at its position.

        Raises as `store`, and Ambiguous.
        """
        try:
            stored_at = await self._watched(payload, position)
        except Conflict:
            return False
        if stored_at != position:
            raise Lost(f"the log stored position {stored_at} where {position} was expected")
        return True

    async def _watched(self, payload: bytes, position: int) -> int:
        """Append; if that takes long, give up as soon as a server reports that it cannot write."""
        loop, found = asyncio.get_running_loop(), _Found()
        handle = loop.call_later(self._settings.stall_seconds, self._look, found)
        try:
            async with asyncio.timeout(None) as found.limit:
                return await self._log.append(payload, position - 1)
        except TimeoutError as error:
            raise Unwritable(found.trouble) from error
        finally:
            handle.cancel()
            if found.task is not None:
                found.task.cancel()

    def _look(self, found: "_Found") -> None:
        found.task = asyncio.create_task(self._ask(found))

    async def _ask(self, found: "_Found") -> None:
        """End an append that waits when a server reports that it cannot write."""
        found.trouble = await self._log.write_trouble()
        if found.trouble and found.limit is not None:
            found.limit.reschedule(asyncio.get_running_loop().time())

    async def _find_out(
        self, payload: bytes, position: int, until: float, problem: LogError
    ) -> bool:
        """Look what stands at the position after an unclear append, and send again if nothing does.

        Should the record appear after this gave up, it is read and applied like anybody else's.
        """
        pause, is_readable = self._settings.retry_seconds, False
        until = max(until, asyncio.get_running_loop().time() + self._settings.stall_seconds)
        while True:
            try:
                stored = await self._log.get(position)
                if stored is not None:
                    return stored == payload
                is_readable = True
                await self._look_for_trouble()
                await self._recognise()
                async with asyncio.timeout_at(until):
                    await self._watched(payload, position)
                return True
            except TimeoutError:
                break
            except Unreachable as error:
                is_readable, problem = False, error
            except (Conflict, Ambiguous) as error:
                problem = error
            self._lose_sight(problem)
            if asyncio.get_running_loop().time() + pause >= until:
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._settings.retry_seconds_max)
        raise _given_up(problem, is_readable)

    async def _look_for_trouble(self) -> None:
        trouble = await self._log.write_trouble()
        if trouble:
            raise Unwritable(trouble)


def _given_up(problem: LogError, is_readable: bool) -> LogError:
    if not is_readable:
        return Unreachable(f"it stays unclear whether a record was stored: {problem}")
    return Unwritable(
        f"the log can be read and stores nothing ({problem}): the disk of a NATS server may be"
        " full. Look at the servers' logs; one that could not write has to be started again"
    )
