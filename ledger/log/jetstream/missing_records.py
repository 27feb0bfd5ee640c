"""Missing records: when a stream that lacks a record counts as one that lost it.

A stream on one server that ends too early, or does not exist, has lost records. A replicated stream
counts as such only after `STALE_LEADER_SECONDS`, because a leader that was cut off or has just been
elected may still answer.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import msgspec

from ledger.log.jetstream import jetstream_api
from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.log_port import Extent, Lost, StreamMissing, Unreachable

RETRY_SECONDS: Final = 0.25
"""Wait between two attempts to read a stream."""

STALE_LEADER_SECONDS: Final = 15
"""A replicated stream's cut-off leader may report an old extent for about 10 s."""


class Stream(msgspec.Struct, frozen=True):
    """A stream to read. `contiguous` streams have every position, and only those may be lost.

    `subject` keeps only one subject's messages of a stream that is not contiguous.
    """

    connection: NatsConnection
    name: str
    contiguous: bool
    replicas: int = 1
    subject: str = ""


class MissingStream:
    """How long a stream has been reported as missing while a log is opened.

    The leader of a cluster of servers may report so after the creation of a stream, until it has
    applied the creation.
    """

    def __init__(self, *, replicas: int) -> None:
        """Count the stream of one replica as lost at once."""
        self._patience = STALE_LEADER_SECONDS if replicas > 1 else 0
        self._since: float | None = None

    @contextlib.contextmanager
    def retried(self) -> Iterator[None]:
        """Raise Unreachable instead of StreamMissing until `STALE_LEADER_SECONDS` have passed."""
        try:
            yield
        except StreamMissing as error:
            now = asyncio.get_running_loop().time()
            self._since = now if self._since is None else self._since
            if now - self._since >= self._patience:
                raise
            raise Unreachable(str(error)) from error
        self._since = None


async def confirmed_extent(stream: Stream, first: int, seen: int) -> Extent:
    """Check that a contiguous stream has `first` … `seen`; return the stream's extent.

    Raises Lost, Unreachable.
    """
    if not stream.contiguous:
        return await _extent_of_disposable(stream)
    extent = await jetstream_api.extent(stream.connection, stream.name)
    stale_seconds = STALE_LEADER_SECONDS if stream.replicas > 1 else 0
    give_up = asyncio.get_running_loop().time() + stale_seconds
    while extent.last < seen and asyncio.get_running_loop().time() < give_up:
        await asyncio.sleep(RETRY_SECONDS)
        extent = await jetstream_api.extent(stream.connection, stream.name)
    if extent.last < seen:
        raise Lost(f"stream {stream.name} ends at {extent.last}, but position {seen} was seen")
    if extent.first > max(first, 1):
        raise Lost(f"stream {stream.name} begins at {extent.first}, position {first} is missing")
    return extent


async def _extent_of_disposable(stream: Stream) -> Extent:
    """Return the extent of a stream whose loss loses no record. Raises Unreachable."""
    try:
        return await jetstream_api.extent(stream.connection, stream.name)
    except StreamMissing as error:
        raise Unreachable(str(error)) from error


async def must_exist(stream: Stream, position: int) -> None:
    """Distinguish a lost record from a silent server.

    A server whose files were cut still announces the old end, and a consumer then waits for ever
    for missing records. A replicated stream is not judged so, because the answer may come from a
    leader that was cut off. Raises Lost, Unreachable.
    """
    if not stream.contiguous or stream.replicas > 1:
        return
    try:
        stored = await jetstream_api.message(stream.connection, stream.name, {"seq": position})
    except TimeoutError as error:
        raise Unreachable(f"stream {stream.name} does not answer") from error
    if stored is None:
        raise Lost(
            f"position {position}: the record is missing, although stream {stream.name}"
            " announces it"
        )
