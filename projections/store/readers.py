"""Readers: consistent views of the projection file, a bounded number at a time.

A view is one read transaction, so all its rows are as of one position, for any writes in the
meantime. Readers open the file read-only.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import aiosqlite
import msgspec

from projections.store.item_bodies import inflate, items_hash
from projections.store.store_writer import (
    APPLICATION,
    VERSION,
    ProjectionHead,
    StoreError,
    head_of,
    pragma,
)

CONNECTIONS: Final = 4
"""Most open views of one `Readers`."""

VIEW_SECONDS: Final = 30.0
"""Deadline of a view, including its wait for a connection."""

_OPEN_SECONDS: Final = 5.0


class ProjectionView(msgspec.Struct, frozen=True):
    """The projection at one moment: a read transaction and its head.

    `renew` restarts the view's deadline; long work calls it after each step.
    """

    connection: aiosqlite.Connection
    head: ProjectionHead
    renew: Callable[[], None]


class Readers:
    """Read-only connections to one projection file, opened when they are first needed.

    When the file is deleted and rebuilt, the next views read the new one. Close them, or use
    them as a context: each connection has a thread that runs until the connection is closed.
    """

    def __init__(self, path: Path, *, seconds: float = VIEW_SECONDS) -> None:
        self.path = path
        self._seconds = seconds
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[tuple[int, aiosqlite.Connection]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def view(self) -> AsyncIterator[ProjectionView]:
        """Open a view for the block.

        Raises StoreError when there is no projection yet, when the file is not a projection, or
        when reading fails in the block. Raises TimeoutError when the wait and the block take too
        long.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._seconds) as limit, self._turns:
            inode, connection = await self._acquire()
            try:
                await connection.execute("BEGIN")
                head = await head_of(connection)
                yield ProjectionView(
                    connection, head, lambda: limit.reschedule(loop.time() + self._seconds)
                )
                await connection.rollback()
            except BaseException as error:
                await connection.interrupt()
                await connection.close()
                if isinstance(error, sqlite3.Error):
                    raise _unreadable(self.path, error) from error
                raise
            self._idle.append((inode, connection))

    async def close(self) -> None:
        """Close the idle connections; open views close their connections."""
        while self._idle:
            await self._idle.pop()[1].close()

    async def _acquire(self) -> tuple[int, aiosqlite.Connection]:
        """Return a connection to the file that is now at the path."""
        try:
            inode = self.path.stat().st_ino
        except OSError as error:
            raise StoreError(
                f"there is no projection at {self.path} ({error.strerror}): start"
                " `gpuledger serve`, or run `gpuledger projection rebuild`"
            ) from error
        while self._idle:
            known, connection = self._idle.pop()
            if known == inode:
                return inode, connection
            await connection.close()
        return inode, await _connect(self.path)


async def _connect(path: Path) -> aiosqlite.Connection:
    uri = f"file:{quote(str(path))}?mode=ro"
    try:
        connection = await aiosqlite.connect(
            uri, uri=True, timeout=_OPEN_SECONDS, isolation_level=None
        )
        try:
            await _check(connection, path)
            for function in (inflate, items_hash):
                await connection.create_function(function.__name__, 1, function, deterministic=True)
        except BaseException:
            await connection.close()
            raise
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    return connection


def _unreadable(path: Path, error: sqlite3.Error) -> StoreError:
    return StoreError(
        f"cannot read the projection {path} ({error}): run `gpuledger projection rebuild`"
    )


async def _check(connection: aiosqlite.Connection, path: Path) -> None:
    application = await pragma(connection, "application_id")
    version = await pragma(connection, "user_version")
    if application == 0 and version == 0:
        raise StoreError(f"the projection {path} is being created: try again in a moment")
    if application != APPLICATION:
        raise StoreError(f"{path} is not a projection of gpuledger: name another file")
    if version != VERSION:
        raise StoreError(
            f"the projection {path} has schema {version} and this gpuledger reads {VERSION}:"
            " start `gpuledger serve`, which builds it again"
        )
