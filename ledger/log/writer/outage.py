"""An outage of the log for its writer: what does not work, why, and since when.

A log that is out of reach is back when it is read again. A log that can be read and stores nothing
is back only when it has stored a record; reading it proves nothing about that.
"""

import asyncio

from ledger.core.model.denials import Denial
from ledger.log import system_denials
from ledger.tasks.backoff import Backoff


class Outage:
    """Begins with a reason, goes on with the newest one, and ends. Needs a running event loop."""

    def __init__(self, reason: str, probing: Backoff) -> None:
        """Begin with a reason that is not an outage yet, because nothing has been tried.

        `probing` are the pauses between two probes of a log that stores nothing.
        """
        self.unreachable: str | None = reason
        self.unwritable: str | None = None
        self.is_full = False
        self._since: float | None = None
        self._probing = probing

    @property
    def reason(self) -> str | None:
        """Why nothing can be decided, None when there is no outage."""
        return self.unreachable or self.unwritable

    def denial(self) -> Denial:
        """Return the answer to a command while the log is out of reach or stores nothing."""
        reason = self.reason or "the log stores nothing"
        return system_denials.full(reason) if self.is_full else system_denials.unavailable(reason)

    def begin(self, reason: str) -> None:
        """Note why the log is out of reach, and since when if it was not before."""
        self.unreachable = reason
        if self._since is None:
            self._since = asyncio.get_running_loop().time()

    def refuse(self, reason: str, *, is_full: bool = False) -> None:
        """Note that the log stores nothing, and why; probe it after the first pause."""
        self.reached()
        self.unwritable, self.is_full = reason, is_full
        self._probing.reset()
        self._probing.failed()

    def postpone(self, reason: str) -> None:
        """Probe again after twice the last pause; an empty reason keeps the last one."""
        if reason:
            self.unwritable, self.is_full = reason, False
        self._probing.failed()

    def is_probe_due(self) -> bool:
        """Return whether it is time to try whether the log stores something again."""
        return self.unwritable is not None and self._probing.is_over()

    def reached(self) -> None:
        """The log was read."""
        self.unreachable = self._since = None

    def end(self) -> None:
        """The log has stored a record."""
        self.reached()
        self.unwritable, self.is_full = None, False

    def lasts(self, seconds: float) -> bool:
        """Return whether the log has been out of reach for so many seconds or more."""
        since = self._since
        return since is not None and asyncio.get_running_loop().time() - since >= seconds
