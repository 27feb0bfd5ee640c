"""Exactly-once appends: one record at its position, even when the acknowledgement is lost.

An append without an answer may have been stored or not. The position shows which: it holds this
record, another writer's record, or nothing yet.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ledger.log.log_port import (
    Ambiguous,
    Log,
    LogError,
    Lost,
    PositionTaken,
    Unreachable,
    Unwritable,
)
from ledger.log.writer.writer_observer import WriterObserver
from ledger.log.writer.writer_settings import WriterSettings
from ledger.tasks.backoff import Backoff


class _AppendWatch:
    """The server's report that arrived while an append waits."""

    __slots__ = ("limit", "task", "trouble")

    def __init__(self) -> None:
        self.trouble = ""
        self.limit: asyncio.Timeout | None = None
        self.task: asyncio.Task[None] | None = None


class ExactlyOnceAppender:
    """Stores records of one writer in one log."""

    def __init__(
        self,
        log: Log,
        settings: WriterSettings,
        *,
        observer: WriterObserver,
        verify_identity: Callable[[], Awaitable[None]],
        mark_unreachable: Callable[[LogError], None],
    ) -> None:
        """`verify_identity` checks that the log is the one that was seen; see `Writer`."""
        self._log, self._settings, self._observer = log, settings, observer
        self._verify_identity, self._mark_unreachable = verify_identity, mark_unreachable

    async def store(self, payload: bytes, position: int) -> bool:
        """Store a record at a position; False when another record is there.

        Raises Full, RecordTooLarge, Unreachable, Lost, and Unwritable when the log can be read and
        stores nothing. Ends within `command_seconds_max`, or the append's own deadline if that is
        longer; a log that was read only shortly before gets `stall_seconds` more.
        """
        until = asyncio.get_running_loop().time() + self._settings.command_seconds_max
        try:
            return await self.send(payload, position)
        except Ambiguous as error:
            self._observer.ambiguous()
            return await self._resolve_ambiguous_append(payload, position, until, error)

    async def send(self, payload: bytes, position: int) -> bool:
        """Append a record once; False when another record is at its position.

        Raises as `store`, and Ambiguous.
        """
        try:
            stored_at = await self._watched(payload, position)
        except PositionTaken:
            return False
        if stored_at != position:
            raise Lost(f"the log stored position {stored_at} where {position} was expected")
        return True

    async def _watched(self, payload: bytes, position: int) -> int:
        """Append; if that takes long, give up as soon as a server reports that it cannot write."""
        loop, watch = asyncio.get_running_loop(), _AppendWatch()
        handle = loop.call_later(self._settings.stall_seconds, self._ask_soon, watch)
        try:
            async with asyncio.timeout(None) as watch.limit:
                return await self._log.append(payload, position - 1)
        except TimeoutError as error:
            raise Unwritable(watch.trouble) from error
        finally:
            handle.cancel()
            if watch.task is not None:
                watch.task.cancel()

    def _ask_soon(self, watch: "_AppendWatch") -> None:
        watch.task = asyncio.create_task(self._ask(watch))

    async def _ask(self, watch: "_AppendWatch") -> None:
        """End an append that waits when a server reports that it cannot write."""
        watch.trouble = await self._log.write_trouble()
        if watch.trouble and watch.limit is not None:
            watch.limit.reschedule(asyncio.get_running_loop().time())

    async def _resolve_ambiguous_append(
        self, payload: bytes, position: int, until: float, problem: LogError
    ) -> bool:
        """Read the position of an unclear append, and send again while it is empty.

        A record that appears after the deadline is read and applied like another writer's record.
        A log that can be read is not marked unreachable: it may be slow, and store the record yet.
        """
        # An append that is only slow is found soon after it was stored.
        backoff = Backoff(self._settings.retry_seconds, self._settings.refresh_seconds)
        loop, stall = asyncio.get_running_loop(), self._settings.stall_seconds
        is_readable = was_readable = False
        until = max(until, loop.time() + stall)
        while True:
            try:
                stored = await self._log.get(position)
                if stored is not None:
                    return stored == payload
                is_readable = True
                await self._raise_write_trouble()
                await self._verify_identity()
                if not was_readable:
                    # Whether the log stores nothing is seen only by an attempt that had time.
                    was_readable, until = True, max(until, loop.time() + stall)
                async with asyncio.timeout_at(until):
                    await self._watched(payload, position)
                return True
            except TimeoutError:
                break
            except Unreachable as error:
                is_readable, problem = False, error
                self._mark_unreachable(error)
            except (PositionTaken, Ambiguous) as error:
                problem = error
            if loop.time() + backoff.seconds >= until:
                break
            await backoff.wait()
        raise _unresolved(problem, is_readable)

    async def _raise_write_trouble(self) -> None:
        trouble = await self._log.write_trouble()
        if trouble:
            raise Unwritable(trouble)


def _unresolved(problem: LogError, is_readable: bool) -> LogError:
    if not is_readable:
        return Unreachable(f"it stays unclear whether a record was stored: {problem}")
    return Unwritable(
        f"the log can be read and stores nothing ({problem}): the disk of a NATS server may be"
        " full. Look at the servers' logs; one that could not write has to be started again"
    )
