"""Changes: a number that goes up, for which others wait."""

import asyncio


class ChangeCounter:
    """Counts what changes, and wakes whoever waits for the next change. Of one event loop."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._version = 0
        self._news = asyncio.Event()

    @property
    def version(self) -> int:
        """How many changes there were."""
        return self._version

    def tell(self) -> None:
        """Count a change."""
        self._version += 1
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self, version: int) -> None:
        """Return when the version is another than this one; it may be so already."""
        while self._version == version:
            await self._news.wait()
