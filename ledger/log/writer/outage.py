"""Outage of the log for its writer: how it is noticed, which commands are refused, and how it ends.

A log that cannot be reached lets commands wait for `outage_seconds`; after that they are refused at
once. It is back when it is read again. The durations are those of `WriterSettings`.

When an append fails or the log is full, a log can be read and stores nothing. Then all commands are
refused at once. A successful read does not end this outage, so the writer probes the log with an
empty record, which promises nothing: first after `probe_seconds`, then after twice the pause each
time, up to `probe_seconds_max`. A full log is not probed, because its extent shows when it has room
again. The outage ends with the next record that the log stores, of any writer.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ledger.core.model.denials import Denial
from ledger.log import system_denials
from ledger.log.log_port import Ambiguous, Full, LogError, Lost, Unwritable
from ledger.log.writer.log_capacity import LogCapacity
from ledger.log.writer.log_identity import LogIdentity
from ledger.log.writer.writer_settings import WriterSettings
from ledger.tasks.backoff import Backoff


class Outage:
    """Begins with a reason, goes on with the newest one, and ends. Needs a running event loop."""

    def __init__(
        self,
        settings: WriterSettings,
        *,
        capacity: LogCapacity,
        identity: LogIdentity,
        refuse_waiting: Callable[[Denial], None],
    ) -> None:
        """Begin with a reason that is not an outage yet, because nothing has been tried.

        `refuse_waiting` answers all waiting commands with a denial.
        """
        self.unreachable: str | None = "the log has not been opened yet"
        self.unwritable: str | None = None
        self._is_full = False
        self._since: float | None = None
        self._wait_seconds = settings.outage_seconds
        self._probing = Backoff(settings.probe_seconds, settings.probe_seconds_max)
        self._capacity, self._identity = capacity, identity
        self._refuse_waiting = refuse_waiting

    @property
    def reason(self) -> str | None:
        """Why nothing can be decided, None when there is no outage."""
        return self.unreachable or self.unwritable

    def refusal(self) -> Denial | None:
        """Return the denial of a new command, None when it may wait for the end of the outage."""
        if self.unwritable or (self.unreachable and self._is_long()):
            return self._denial()
        return None

    def mark_unreachable(self, error: LogError) -> None:
        """Note why the log is out of reach: it may be another log when it is back."""
        self.unreachable = str(error)
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
        self._identity.is_unverified = True

    def is_unwritable(self, error: Full | Unwritable, size: int) -> bool:
        """Refuse all commands after a failed append; False when smaller records may be stored.

        `size` is that of the record in bytes.
        """
        if isinstance(error, Full) and self._capacity.shrink(size):
            if not self._capacity.is_full:
                return False
            self._refuse(self._capacity.fullness(), is_full=True)
        else:
            self._refuse(str(error))
        return True

    def log_was_read(self) -> None:
        """Note that the log is within reach, and refuse all commands when it is full."""
        self.opened()
        if self._capacity.is_full and not self._is_full:
            self._refuse(self._capacity.fullness(), is_full=True)

    async def probe_when_due(self, store_empty_record: Callable[[], Awaitable[None]]) -> None:
        """Try whether the log stores something again, if the pause is over.

        `store_empty_record` may raise what an append raises. Raises Lost.
        """
        if self.unwritable is None or not self._probing.is_over() or self._capacity.is_full:
            return
        try:
            await store_empty_record()
        except Lost:
            raise
        except LogError as error:
            # An ambiguous outcome gives no newer reason.
            if not isinstance(error, Ambiguous):
                self.unwritable, self._is_full = str(error), False
            self._probing.failed()

    def opened(self) -> None:
        """Note that the log is within reach."""
        self.unreachable = self._since = None

    def end(self) -> None:
        """Note that the log has stored a record."""
        self.opened()
        self.unwritable, self._is_full = None, False

    def _refuse(self, reason: str, *, is_full: bool = False) -> None:
        """Refuse all waiting and coming commands, because the log stores nothing."""
        self.opened()
        self.unwritable, self._is_full = reason, is_full
        self._probing.reset()
        self._probing.failed()
        self._identity.is_unverified = True
        self._refuse_waiting(self._denial())

    def _denial(self) -> Denial:
        reason = self.reason or "the log stores nothing"
        return system_denials.full(reason) if self._is_full else system_denials.unavailable(reason)

    def _is_long(self) -> bool:
        """Return whether the log has been out of reach for longer than commands wait."""
        since = self._since
        return since is not None and asyncio.get_running_loop().time() - since >= self._wait_seconds
