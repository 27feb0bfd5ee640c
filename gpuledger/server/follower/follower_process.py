"""Follower process: beside the service, it keeps projection and snapshots up to date.

It folds the same log in a separate process, because SQLite and the encoding of a large state would
block the event loop that answers reviews. It also scrubs the log.

Started by `gpuledger.server.follower.follower_supervisor`, it reads its instructions as one line of
JSON from standard input, and then the cards in ResourceSlices and questions. It ends with standard
input, so it never outlives the service. It prints its messages to the service as lines of JSON.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from gpuledger.server.follower.card_answers import CardAnswer, CardAnswers, CardQuestion
from gpuledger.server.follower.unsent_offers import OfferMessage
from gpuledger.storage import scratch_folder
from gpuledger.storage.projection_catch_up import projecting
from gpuledger.wiring import log_from_settings, store_layout
from ledger.core import snapshot_format
from ledger.core.model.state import State
from ledger.log.log_port import Log, LogEntry, Lost, Snapshot
from ledger.log.records import NewerSchema
from ledger.log.recovery.scrub import scrub
from ledger.runtime import gc_tuning, log_setup
from ledger.runtime.settings.settings import Settings
from projections.projector import denial_projector
from projections.projector.projector import Projector
from projections.store.store_writer import Store, StoreError

SNAPSHOT_SECONDS: Final = 10.0
"""Shortest time between two snapshots, for any number of events."""

LOCK_SECONDS: Final = 30.0
"""Longest wait for another writer of the projection."""

NICENESS: Final = 10
"""Niceness of this process, so that the one that answers reviews has priority."""

END_SECONDS: Final = 1.0
"""Deadline of closing the log, which may be unreachable."""

SCRUB_SECONDS: Final = 24 * 3600.0
"""Interval of reading the whole log."""

GATHER_SECONDS: Final = 0.05
"""Wait for further events after few, because a transaction of many costs little more."""

PIECE_BYTES: Final = 4_096
"""Bytes of records that are folded at a stretch while the projection keeps up with the log: about
a millisecond."""

PIECES_MAX: Final = 25
"""Bound of the pieces of a batch, so that the pauses between them end within `GATHER_SECONDS`."""

PAUSE_SECONDS: Final = 0.002
"""Pause between two pieces."""

BEHIND_ENTRIES: Final = 256
"""A batch of so many records is projected without pauses."""

GATHERED_EVENTS: Final = 500
"""Number of events after which the follower does not wait."""

FILE_SECONDS: Final = 2.0
"""Interval of checking that the projection's file is still the opened one."""

QUESTION_BYTES_MAX: Final = 4 * 1024 * 1024
"""Longest line that the service sends."""

_log: Final = structlog.get_logger("gpuledger.server.follower")


class FollowerInstructions(msgspec.Struct, frozen=True):
    """The instructions of the service to its follower."""

    settings: Settings
    servers: log_from_settings.LogServers


class FollowerMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the follower to the service; one field is set.

    It is the problem of a lost log, the position of a finished scrub, that of a new snapshot, or
    the answer to a question.
    """

    lost: str = ""
    scrubbed: int = -1
    snapshot: int = -1
    answer: CardAnswer | None = None


async def follow(instructions: FollowerInstructions, cards: CardAnswers) -> None:
    """Follow until cancelled, as the only one that writes the store's projection.

    A log that is not intact is reported and ends the task. Raises StoreBusy when a command, or
    the follower of a service that was killed, writes the projection for too long.
    """
    async with projecting(instructions.settings, LOCK_SECONDS):
        scratch_folder.remove_stale(Path(instructions.settings.store_dir))
        await _follow(instructions, cards)


async def _follow(instructions: FollowerInstructions, cards: CardAnswers) -> None:
    settings = instructions.settings
    log_setup.configure(settings.log_level, settings.log_format)
    log = await log_from_settings.connect(settings, instructions.servers)
    path = Path(settings.store_dir) / store_layout.PROJECTION
    store = await Store.open(path)
    try:
        await log.open(create=False)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_project(log, store, settings.snapshot_events, cards))
            tasks.create_task(denial_projector.follow(log, store))
            tasks.create_task(denial_projector.expire(store, settings.denials_days))
            tasks.create_task(_scrub(log))
            tasks.create_task(_stay(path))
    except* (Lost, NewerSchema) as group:
        _send(FollowerMessage(lost="; ".join(str(error) for error in group.exceptions)))
    except* StoreError as group:
        reason = "; ".join(str(error) for error in group.exceptions)
        _log.error("projection_unusable", reason=reason)
    finally:
        await store.close()
        await log.close()


async def _project(log: Log, store: Store, snapshot_events: int, cards: CardAnswers) -> None:
    loop = asyncio.get_running_loop()
    with gc_tuning.freeze_afterwards():
        projector = await Projector.resume(log, store)
    cards.start(projector)
    events, saved_at, last = 0, loop.time(), (await log.extent()).last
    async for batch in log.follow(projector.position + 1):
        more = await _project_in_pieces(projector, batch, last)
        events += more
        if events >= snapshot_events and loop.time() - saved_at >= SNAPSHOT_SECONDS:
            payload = await _encoded(projector.state)
            position = projector.state.position
            await log.save_snapshot(Snapshot(position, payload))
            _send(FollowerMessage(snapshot=position))
            events, saved_at = 0, loop.time()
        if more < GATHERED_EVENTS:
            await asyncio.sleep(GATHER_SECONDS)


async def _project_in_pieces(projector: Projector, batch: Sequence[LogEntry], last: int) -> int:
    """Project a batch and return the number of its events; pause between pieces of a small one.

    A process that computes for long keeps the log server waiting for a core, up to three ticks of
    the kernel, however low its priority is. The changes are stored with the last piece.
    """
    if len(batch) >= BEHIND_ENTRIES:
        return await projector.project(batch, known=last)
    known, events = max(last, batch[-1].position), 0
    for piece in _pieces(batch):
        if piece[0] is not batch[0]:
            await asyncio.sleep(PAUSE_SECONDS)
        events += await projector.project(piece, known=known)
    return events


def _pieces(batch: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
    """Cut a batch into at most `PIECES_MAX` and one pieces of `PIECE_BYTES` or little more."""
    most = max(PIECE_BYTES, sum(len(entry.payload) for entry in batch) // PIECES_MAX)
    first = size = 0
    for index, entry in enumerate(batch, 1):
        size += len(entry.payload)
        if size >= most or index == len(batch):
            yield batch[first:index]
            first, size = index, 0


async def _encoded(state: State) -> bytes:
    """Encode a state that only the caller changes, and let other tasks run in between."""
    encoding = snapshot_format.encode_in_pieces(state)
    while True:
        try:
            next(encoding)
        except StopIteration as end:
            return bytes(end.value)
        await asyncio.sleep(0)


async def _stay(path: Path) -> None:
    """Raise StoreError when the projection's file was deleted or replaced.

    Readers no longer open the old file. The supervisor restarts this process, which builds a new
    one.
    """
    opened = _file_at(path)
    while _file_at(path) == opened:  # noqa: ASYNC110 (no event exists)
        await asyncio.sleep(FILE_SECONDS)
    raise StoreError(f"{path} was deleted or replaced; it is built again from the log")


def _file_at(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None


async def _scrub(log: Log) -> None:
    while True:
        last = (await log.extent()).last
        await scrub(log, last)
        _send(FollowerMessage(scrubbed=last))
        await asyncio.sleep(SCRUB_SECONDS)


def _send(message: FollowerMessage) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


async def _answer(reader: asyncio.StreamReader, cards: CardAnswers) -> None:
    """Answer questions until standard input ends."""
    async with asyncio.TaskGroup() as tasks:
        while line := await reader.readline():
            message = msgspec.json.decode(line, type=CardQuestion | OfferMessage)
            if isinstance(message, OfferMessage):
                cards.take_offers(message)
            else:
                tasks.create_task(_answer_one(message, cards))


async def _answer_one(question: CardQuestion, cards: CardAnswers) -> None:
    _send(FollowerMessage(answer=await cards.answer(question)))


async def _run() -> None:
    """Follow until standard input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=QUESTION_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    instructions = msgspec.json.decode(await reader.readline(), type=FollowerInstructions)
    cards = CardAnswers(instructions.settings)
    following = asyncio.create_task(follow(instructions, cards))
    ended = asyncio.create_task(_answer(reader, cards))
    await asyncio.wait((following, ended), return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if following.done():
        following.result()
        return
    following.cancel()
    _, late = await asyncio.wait({following}, timeout=END_SECONDS)
    if late:
        # SQLite's file is intact at any moment, and the next follower waits for the lock.
        os._exit(0)


def main() -> None:
    """Run as a separate process."""
    # The service handles a signal to the whole group, and closes our standard input.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Reviews have priority; the projection may be older while they need the processor.
    os.nice(NICENESS)
    gc_tuning.collect_less_often()
    asyncio.run(_run())


if __name__ == "__main__":
    main()
