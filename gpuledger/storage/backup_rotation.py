"""Backup rotation: a new backup in a directory, and the oldest of the same log deleted.

A backup is deleted only after the new one is complete and begins with all its records: the hash of
its last record is that of the log there. Backups of a log that was replaced or cut off, and
damaged or unreadable ones, are kept and do not count.
"""

import contextlib
import re
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.storage import archive_file
from gpuledger.storage.archive_file import PARTIAL, ArchiveHeader, BadArchive
from gpuledger.storage.backup import hash_at, write_archive
from gpuledger.storage.open_log import open_log
from ledger.log import records
from ledger.log.log_port import Log, Lost
from ledger.log.records import NewerSchema
from ledger.runtime.settings.settings import Settings

SUFFIX: Final = ".backup"

ABANDONED_SECONDS: Final = 24 * 3600.0
"""Age of an unfinished file that no backup writes any more."""

_STAMP: Final = "%Y%m%dT%H%M%SZ"
_STAMPED: Final = r"[0-9]{8}T[0-9]{6}Z"


class RotatedBackup(msgspec.Struct, frozen=True):
    """The result of a backup with rotation: the new file, and how many there are and were deleted.

    `hash` is that of the last record.
    """

    shard: str
    records: int
    hash: str
    file: str
    kept: int
    deleted: int


async def rotate(settings: Settings, directory: str, keep: int) -> RotatedBackup:
    """Write a backup to a directory and keep the newest `keep` of this log.

    Raises CommandError, after the new backup is written, if the directory has damaged or unreadable
    backups of the shard, or backups with records that the log does not have. Raises also OSError
    and what `backup` raises.
    """
    folder = _folder(directory)
    _remove_abandoned(folder, settings.shard)
    before = _backups(folder, settings.shard)
    async with open_log(settings) as opened:
        path = folder / f"{settings.shard}-{datetime.now(UTC):{_STAMP}}{SUFFIX}"
        summary = await write_archive(opened.log, settings.shard, path)
        older, others = await _compared(opened.log, before)
    surplus = older[: max(0, len(older) + 1 - keep)]
    for known in surplus:
        known.unlink(missing_ok=True)
    if others:
        raise CommandError(Exit.FAILED, _kept_apart(path, others))
    return RotatedBackup(
        summary.shard,
        summary.records,
        summary.hash,
        str(path),
        len(older) + 1 - len(surplus),
        len(surplus),
    )


def _kept_apart(path: Path, others: list[Path]) -> str:
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return (
        f"{path} is written. {others[0]}{more} cannot be replaced by it and stays: it is damaged"
        " or cannot be read, or has records that the log does not have, because the log was"
        " replaced, cut off, or restored from an older backup. Move such files to another"
        " directory, or delete them if you no longer need their records"
    )


def _folder(directory: str) -> Path:
    folder = Path(directory)
    if not folder.is_dir():
        raise CommandError(
            Exit.USAGE, f"{folder} is not a directory; with --keep, name a directory for backups"
        )
    return folder


def _backups(folder: Path, shard: str) -> list[Path]:
    """Return the backups of a shard by name. Other files are left alone."""
    named = re.compile(rf"{re.escape(shard)}-{_STAMPED}{re.escape(SUFFIX)}")
    return sorted(path for path in folder.iterdir() if named.fullmatch(path.name))


async def _compared(log: Log, backups: list[Path]) -> tuple[list[Path], list[Path]]:
    """Return the backups that the log begins with, by number of records, and the others.

    The number of records is the age, because a clock that was set back gives a new backup an older
    name.
    """
    last = (await log.extent()).last
    ours: list[tuple[int, Path]] = []
    others: list[Path] = []
    for path in backups:
        header = _header_of(path)
        if (
            header is not None
            and header.records <= last
            and header.hash == await hash_at(log, header.records)
        ):
            ours.append((header.records, path))
        else:
            others.append(path)
    return [path for _, path in sorted(ours)], others


def _remove_abandoned(folder: Path, shard: str) -> None:
    """Remove what a killed backup has left."""
    named = re.compile(rf"{re.escape(shard)}-{_STAMPED}{re.escape(SUFFIX + PARTIAL)}")
    for path in folder.iterdir():
        if not named.fullmatch(path.name):
            continue
        # A file that cannot be removed must not stop the new backup.
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                path.unlink()


def _header_of(path: Path) -> ArchiveHeader | None:
    """Return the header of a backup with its hash, None if it is damaged or cannot be read.

    A backup of an older version has no hash in its header, and is read to its end.
    """
    try:
        frames = archive_file.read(path)
        header = archive_file.header_of(next(frames, b""), path)
        if header.hash or not header.records:
            return header
        final = next(iter(deque(frames, maxlen=1)), b"")
        link, digest = records.decode_link(final)
    except (BadArchive, Lost, NewerSchema, OSError):
        return None
    if link.position != header.records:
        return None
    return msgspec.structs.replace(header, hash=digest.hex())
