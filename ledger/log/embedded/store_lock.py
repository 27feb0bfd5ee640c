"""Store lock: one nats-server at a time uses a store directory, and none while an orphan lives.

The lock is an flock whose descriptor the server inherits. So the lock lasts as long as the server,
even when the process that took it was killed.
"""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 0.05
"""How often the lock is tried."""


class StoreBusy(Exception):
    """Another process uses the store."""


class StoreLock:
    """A held lock; a child inherits its `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        """Own a descriptor that holds the lock."""
        self.descriptor = descriptor

    def release(self) -> None:
        """Release it; a child that inherited the descriptor still holds the lock."""
        os.close(self.descriptor)


async def acquire(path: Path, seconds: float, holder: str) -> StoreLock:
    """Take the lock, waiting up to so many seconds. Raises StoreBusy naming the holder."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        async with asyncio.timeout(seconds):
            while not _try(descriptor):  # noqa: ASYNC110 (an flock cannot be awaited)
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError as error:
        os.close(descriptor)
        raise StoreBusy(
            f"store {path.parent} is in use by {holder}; waited {seconds:g} s:"
            " stop it, or choose another store directory"
        ) from error
    except BaseException:
        os.close(descriptor)
        raise
    return StoreLock(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
