"""Log end check: heads (positions and hashes) kept outside the log, which the log must hold.

A hash chain does not show that the end of the log is missing. A log that ends before a witnessed
head has lost acknowledged records, and must not be written: it would promise the same room twice.
"""

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from ledger.log import records
from ledger.log.log_port import Log, Lost

NOTE_SECONDS: Final = 1.0
"""How often at most the head file is written: each write waits for the disk."""


class LogHead(msgspec.Struct, frozen=True):
    """The hash of the record at a position, and the source of that knowledge."""

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
        """Write the head in a thread, so that a slow disk does not block the event loop."""
        await asyncio.to_thread(self.write, head)


def check_length(witnesses: Sequence[LogHead], last: int) -> None:
    """Check that a log that ends at position `last` reaches every witness. Raises Lost."""
    for witness in witnesses:
        if witness.position > last:
            raise Lost(
                f"the log ends at position {last}, but {witness.source} has seen position"
                f" {witness.position}: acknowledged records are missing. Restore the log from a"
                " backup or a mirror; see docs/how-to/operating.md"
            )


async def holds_record(log: Log, witness: LogHead) -> bool:
    """Return whether the log holds a witnessed record; False when it holds none at its position.

    Raises Lost when it holds another record there.
    """
    return witness.position == 0 or await _record(log, witness) is not None


async def checked_record(log: Log, witness: LogHead) -> bytes:
    """Return the witnessed record of the log, as its payload. Raises Lost."""
    payload = await _record(log, witness)
    if payload is None:
        raise Lost(f"position {witness.position}, known from {witness.source}, is missing")
    return payload


async def _record(log: Log, witness: LogHead) -> bytes | None:
    """Return the witnessed record, None if the log holds none there. Raises Lost for another."""
    payload = await log.get(witness.position)
    if payload is None:
        return None
    _, digest = records.decode(payload)
    if digest.hex() != witness.hash:
        raise Lost(
            f"position {witness.position} holds another record than {witness.source} has seen:"
            " this is not the same log"
        )
    return payload


async def check_record(log: Log, witness: LogHead) -> None:
    """Check that the log holds a witnessed record. Raises Lost."""
    if witness.position:
        await checked_record(log, witness)


def _sync(directory: Path) -> None:
    """Wait until a directory's entries are on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
