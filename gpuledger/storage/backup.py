"""Backup and restore: copies the log to an archive and back, verified record by record."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.progress import bar
from gpuledger.storage import archive_file
from gpuledger.storage.archive_file import ArchiveHeader, ArchiveWriter, BadArchive
from gpuledger.storage.open_log import open_log
from gpuledger.storage.projection_catch_up import show_written
from gpuledger.wiring import store_layout
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.jetstream.nats_errors import plainly
from ledger.log.log_port import Log, Lost
from ledger.log.records import NewerSchema
from ledger.log.recovery.log_end_check import HeadFile, LogHead
from ledger.log.writer.exactly_once import ExactlyOnceAppender
from ledger.log.writer.writer_observer import WriterObserver
from ledger.log.writer.writer_settings import WriterSettings
from ledger.runtime.settings.settings import Settings
from projections import log_verification


class BackupSummary(msgspec.Struct, frozen=True):
    """The result of a backup or a restore; `hash` is that of the last record."""

    shard: str
    records: int
    hash: str


async def backup(settings: Settings, file: str) -> BackupSummary:
    """Write the log to a file. Raises CommandError, Lost, and what finding the log raises."""
    async with open_log(settings) as opened:
        return await write_archive(opened.log, settings.shard, Path(file))


async def write_archive(log: Log, shard: str, path: Path) -> BackupSummary:
    """Write a log to a file. Raises Lost, NewerSchema, Unreachable and OSError."""
    last = (await log.extent()).last
    with ArchiveWriter(path, ArchiveHeader(shard, last, await hash_at(log, last))) as writer:
        state = await _copy(log, last, writer)
        writer.finish()
    return BackupSummary(shard, last, state.hash.hex())


async def hash_at(log: Log, position: int) -> str:
    """Return the hash of a record of a log in hex, empty for position 0.

    The hash covers all records up to there. Raises Lost, NewerSchema, Unreachable.
    """
    if not position:
        return ""
    payload = await log.get(position)
    if payload is None:
        raise Lost(f"position {position}: the record is missing")
    return records.decode_link(payload)[1].hex()


async def restore(settings: Settings, file: str) -> BackupSummary:
    """Write the log of an archive to a new store. Raises CommandError, Lost."""
    head, shard = _checked(Path(file))
    if shard != settings.shard:
        raise CommandError(
            Exit.USAGE, f"{file} holds the shard {shard}: restore it with --shard {shard}"
        )
    _refuse_used(settings)
    async with open_log(settings, create=True) as opened:
        if (await opened.log.extent()).last:
            raise CommandError(
                Exit.USAGE, f"the log {shard} has records already; restore to a new one"
            )
        # From here on, opening a log that is shorter than the backup fails.
        await HeadFile(Path(settings.store_dir) / store_layout.HEAD).note(head)
        await refill(opened.log, Path(file), head)
        await show_written(settings, opened, head.position)
    return BackupSummary(shard, head.position, head.hash)


def shard_of(file: str) -> str:
    """Return the shard of a backup. Raises CommandError naming the file."""
    path = Path(file)
    try:
        return archive_file.header_of(next(archive_file.read(path), b""), path).shard
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{plainly(error)}; nothing was restored") from error
    except BadArchive as error:
        raise CommandError(Exit.FAILED, f"{error}; nothing was restored") from error


async def _copy(log: Log, last: int, writer: ArchiveWriter) -> State:
    """Fold and copy the records up to `last`; returns the state there."""
    state = State()
    if not last:
        return state
    with bar("backing up") as progress:
        async for batch in log.read(1, last):
            for entry in batch:
                records.fold(state, entry.position, entry.payload)
                writer.add(entry.payload)
            progress(state.position, last)
    return state


def _checked(path: Path) -> tuple[LogHead, str]:
    """Verify an archive as a whole; returns its head and shard. Raises CommandError naming the
    file."""
    state = State()
    try:
        frames = archive_file.read(path)
        header = archive_file.header_of(next(frames, b""), path)
        with bar("checking the backup") as progress:
            for payload in frames:
                records.fold(state, state.position + 1, payload)
                progress(state.position, header.records)
        if state.position != header.records:
            raise BadArchive(f"{path} has {state.position} of {header.records} records")
    except NewerSchema as error:
        raise CommandError(Exit.FAILED, f"{path}: {error}; nothing was restored") from error
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{plainly(error)}; nothing was restored") from error
    except (BadArchive, Lost) as error:
        raise CommandError(Exit.FAILED, f"{error}; nothing was restored") from error
    return LogHead(state.position, state.hash.hex(), str(path)), header.shard


def _refuse_used(settings: Settings) -> None:
    store = Path(settings.store_dir)
    if store.exists() and any(store.iterdir()):
        raise CommandError(
            Exit.USAGE,
            f"{store} is not empty; name a new store with --store-dir. Nothing was restored",
        )


async def refill(log: Log, path: Path, head: LogHead) -> None:
    """Append every record of a checked archive at its position and verify the result.

    Raises CommandError, and what storing a record and reading the log raise.
    """
    appender = _appender(log)
    with bar("restoring") as progress:
        for position, payload in enumerate(_records(path), start=1):
            if not await appender.store(payload, position):
                raise CommandError(
                    Exit.FAILED,
                    f"another program wrote position {position} of the log meanwhile: empty the"
                    " store, stop every service on it, and restore again",
                )
            progress(position, head.position)
    expected = log_verification.ExpectedHead(head.position, head.hash) if head.position else None
    with bar("verifying") as progress:
        report = await log_verification.verify(log, expected, on_progress=progress)
    if not report.ok:
        raise CommandError(
            Exit.FAILED, f"the restored log is not the one of {path}: {report.problem}"
        )


def _appender(log: Log) -> ExactlyOnceAppender:
    """Return an appender that finds out about records without an acknowledgement."""

    async def nothing_to_verify() -> None:
        pass

    return ExactlyOnceAppender(
        log,
        WriterSettings(),
        observer=WriterObserver(),
        verify_identity=nothing_to_verify,
        mark_unreachable=lambda _: None,
    )


def _records(path: Path) -> Iterator[bytes]:
    frames = archive_file.read(path)
    next(frames)
    return frames
