"""An outage of the log as its writer sees it: why it is out of reach, and for how long already."""

import asyncio


class Outage:
    """Begins with a reason, goes on with the newest one, and ends. Needs a running event loop."""

    def __init__(self, reason: str) -> None:
        """Begin with a reason that was no outage yet: nothing has been tried."""
        self.reason: str | None = reason
        self._since: float | None = None

    def begin(self, reason: str) -> None:
        """Note why the log is out of reach, and since when if it was not before."""
        self.reason = reason
        if self._since is None:
            self._since = asyncio.get_running_loop().time()

    def end(self) -> None:
        """The log was reached."""
        self.reason = self._since = None

    def lasts(self, seconds: float) -> bool:
        """Return whether the log has been out of reach for so many seconds or more."""
        since = self._since
        return since is not None and asyncio.get_running_loop().time() - since >= seconds
