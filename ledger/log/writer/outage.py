"""An outage of the log as its writer sees it: what does not work, why, and for how long already.

A log that is out of reach is back when it is read again. A log that can be read and stores nothing
is back only when it has stored a record; reading it proves nothing about that.
"""

import asyncio


class Outage:
    """Begins with a reason, goes on with the newest one, and ends. Needs a running event loop."""

    def __init__(self, reason: str) -> None:
        """Begin with a reason that was no outage yet: nothing has been tried."""
        self.unreachable: str | None = reason
        self.unwritable: str | None = None
        self.is_full = False
        self._since: float | None = None
        self._probe_at = 0.0
        self._pause = 0.0

    @property
    def reason(self) -> str | None:
        """Why nothing can be decided, None when there is no outage."""
        return self.unreachable or self.unwritable

    def begin(self, reason: str) -> None:
        """Note why the log is out of reach, and since when if it was not before."""
        self.unreachable = reason
        if self._since is None:
            self._since = asyncio.get_running_loop().time()

    def refuse(self, reason: str, pause: float, *, is_full: bool = False) -> None:
        """Note that the log stores nothing, and why; probe it after so many seconds."""
        self.reached()
        self.unwritable, self.is_full = reason, is_full
        self._pause = pause
        self._probe_at = asyncio.get_running_loop().time() + pause

    def postpone(self, reason: str, pause_max: float) -> None:
        """Probe again after twice the last pause, or the most; an empty reason says nothing new."""
        if reason:
            self.unwritable, self.is_full = reason, False
        self._pause = min(2 * self._pause, pause_max)
        self._probe_at = asyncio.get_running_loop().time() + self._pause

    def is_probe_due(self) -> bool:
        """Return whether it is time to try whether the log stores something again."""
        return self.unwritable is not None and asyncio.get_running_loop().time() >= self._probe_at

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
