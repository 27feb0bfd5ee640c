"""Change counter: a number that rises with each change, and wakes the tasks that wait for one."""

import asyncio


class ChangeCounter:
    """Counts changes and wakes the tasks that wait for the next one. For one event loop."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._version = 0
        self._changed = asyncio.Event()

    @property
    def version(self) -> int:
        """The number of changes so far."""
        return self._version

    def increment(self) -> None:
        """Count a change and wake the waiting tasks."""
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, version: int) -> None:
        """Return as soon as the version differs from this one."""
        while self._version == version:
            await self._changed.wait()
