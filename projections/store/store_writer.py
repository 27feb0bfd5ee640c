"""Store writer: transactions of the projection's SQLite file, and its replacement at a new schema.

The writer stores position and rows in one transaction, so the file holds complete records after a
kill at any byte. A file with another schema version is deleted and built again from the log.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final, Self, TypeVar

import aiosqlite
import msgspec

from projections.store.interval_index import fork

T = TypeVar("T")

APPLICATION: Final = 0x67707564
"""SQLite's application_id of a projection file."""

VERSION: Final = 9
"""SQLite's user_version of the schema this code reads and writes."""

BUSY_SECONDS: Final = 10.0
"""Wait of a transaction for another process that writes the file."""

_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",  # a power cut may cost the last transactions, never the rest
    "PRAGMA cache_size = -65536",  # KiB
    "PRAGMA temp_store = MEMORY",
    "PRAGMA wal_autocheckpoint = 4000",  # pages
    "PRAGMA journal_size_limit = 67108864",  # bytes
)

_ENDED: Final = """
CREATE TEMP VIEW charges_ended AS SELECT namespace, key, base, uid FROM charges_open;
CREATE TEMP TRIGGER charge_ended INSTEAD OF INSERT ON charges_ended BEGIN
  DELETE FROM charges_open
  WHERE namespace = NEW.namespace AND key = NEW.key AND base = NEW.base AND uid = NEW.uid;
END;
"""
"""A row inserted into `charges_ended` is deleted from `charges_open`, because SQLite has no
statement that deletes rows by a list of four values. Many rows are one statement."""

_SCRATCH_PRAGMAS: Final = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA cache_size = -262144",  # KiB
    "PRAGMA temp_store = MEMORY",
)
"""For a file that no other process reads before it is closed, and that is deleted after a kill."""


class StoreError(Exception):
    """The projection file cannot be used; the message names the file and the remedy."""


class ProjectionHead(msgspec.Struct, frozen=True):
    """The last record of a projection: position, time in µs of Unix time, and hash."""

    position: int
    time: int
    hash: bytes


class Store:
    """The writing side of one projection file. Close it, or use it as a context."""

    def __init__(
        self, path: Path, connection: aiosqlite.Connection, *, scratch: bool = False
    ) -> None:
        self.path = path
        self.scratch = scratch
        self._connection = connection

    @classmethod
    async def open(cls, path: Path, *, scratch: bool = False) -> "Store":
        """Open the file for writing, create it, or replace a file of another schema.

        A `scratch` file is written without a journal: it is usable once it is closed, and damaged
        after a kill before that.

        Raises StoreError when the file cannot be opened or is not a projection.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = await _connect(path, scratch=scratch)
            if await _is_outdated(connection, path):
                await connection.close()
                delete(path)
                connection = await _connect(path, scratch=scratch)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"cannot open the projection {path} ({error}): make its directory writable, or"
                " delete the file; it is built again from the log"
            ) from error
        return cls(path, connection, scratch=scratch)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def head(self) -> ProjectionHead:
        """Return the head of the file, position 0 when it is empty. Raises StoreError."""
        with self._failing():
            return await head_of(self._connection)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in one write transaction: all of it is stored, or nothing.

        The function runs on the thread of the connection, so all of its statements cost one
        hand-over between threads, and to its end also when the caller is cancelled. Raises
        StoreError when SQLite fails in it: the file is damaged or the disk is full.
        """
        with self._failing():
            # aiosqlite has no public call that runs a function on its thread.
            file = self._connection._conn
            running = self._connection._execute(_in_transaction, file, work)  # type: ignore[no-untyped-call]
            result: T = await running
            return result

    async def close(self) -> None:
        """Close the file. A scratch file is on the disk after that."""
        await self._connection.close()
        if self.scratch:
            await asyncio.to_thread(_sync, self.path)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Name the file and the remedy when SQLite fails in the block."""
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"cannot write the projection {self.path} ({error}): make room on its disk, or"
                " delete the file; it is built again from the log"
            ) from error


def _in_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    return result


def delete(path: Path) -> None:
    """Delete a projection file with its companions.

    The main file is deleted last: after a kill before that, the next process recognises the file
    and deletes it.
    """
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


async def head_of(connection: aiosqlite.Connection) -> ProjectionHead:
    """Return the head of a projection in the transaction of its connection."""
    statement = "SELECT position, time, hash FROM records ORDER BY position DESC LIMIT 1"
    async with connection.execute(statement) as rows:
        row = await rows.fetchone()
    return ProjectionHead(*row) if row is not None else ProjectionHead(0, 0, bytes(32))


async def pragma(connection: aiosqlite.Connection, name: str) -> int:
    """Return the value of a numeric pragma."""
    async with connection.execute(f"PRAGMA {name}") as rows:
        row = await rows.fetchone()
    return int(row[0]) if row is not None else 0


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


async def _connect(path: Path, *, scratch: bool) -> aiosqlite.Connection:
    connection = await aiosqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        for statement in _SCRATCH_PRAGMAS if scratch else _PRAGMAS:
            await connection.execute(statement)
        await connection.create_function("fork", 2, fork, deterministic=True)
        await _create(connection)
        await connection.executescript(_ENDED)
    except BaseException:
        await connection.close()
        raise
    return connection


async def _create(connection: aiosqlite.Connection) -> None:
    """Create the schema in an empty file; a file that has any table is left alone."""
    async with connection.execute("SELECT count(*) FROM sqlite_master") as rows:
        row = await rows.fetchone()
    if row is None or row[0] == 0:
        schema = resources.files("projections.store").joinpath("schema.sql").read_text()
        await connection.executescript(f"BEGIN IMMEDIATE;\n{schema}\nCOMMIT;")


async def _is_outdated(connection: aiosqlite.Connection, path: Path) -> bool:
    """Return whether the file is a projection of another schema. Raises StoreError if it is not a
    projection.

    Other files are never deleted.
    """
    if await pragma(connection, "application_id") != APPLICATION:
        await connection.close()
        raise StoreError(
            f"{path} is not a projection of gpuledger: move it away, or choose another file"
        )
    return await pragma(connection, "user_version") != VERSION
