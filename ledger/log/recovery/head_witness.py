"""Witnesses: heads of the log kept outside the log, because a hash chain cannot see a lost tail.

A log that ends before a head that somebody saw has lost acknowledged records. Such a log must stop,
not continue: continuing would promise the same room twice.
"""

import asyncio
import os
import threading
from pathlib import Path
from typing import Final

import msgspec

NOTE_SECONDS: Final = 1.0
"""How often at most the head file is written: each write waits for the disk."""


class LogHead(msgspec.Struct, frozen=True):
    """The hash of the record at a position, and where it is known from."""

    position: int
    hash: str
    source: str = ""


class HeadFile:
    """The head this replica saw last, in a small file that is synced to disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()

    def read(self) -> LogHead | None:
        """Return the noted head, None when there is none yet.

        Raises ValueError naming the file when it does not hold a head: an unreadable witness is not
        the same as no witness.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            head = msgspec.json.decode(content, type=LogHead)
        except msgspec.MsgspecError as error:
            raise ValueError(
                f"{self._path} is not a head file ({error}): delete the file, and check the log"
                " with `gpuledger audit verify --expect` before it is used again"
            ) from error
        return msgspec.structs.replace(head, source=str(self._path))

    def write(self, head: LogHead) -> None:
        """Replace the noted head and wait until it is on disk.

        Writes follow one another: one that `note` began goes on when its caller is cancelled.
        """
        with self._writing:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self._path.with_suffix(".part")
            with scratch.open("wb") as file:
                file.write(msgspec.json.encode(head))
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._path)
            _sync(self._path.parent)

    async def note(self, head: LogHead) -> None:
        """Write the head in a thread, so that a slow disk blocks nobody."""
        await asyncio.to_thread(self.write, head)


def _sync(directory: Path) -> None:
    """Wait until a directory's entries are on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
