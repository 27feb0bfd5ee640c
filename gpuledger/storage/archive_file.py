"""Archive file: the format of a backup, one file with a complete log.

The format, version 1: the line `gpuledger-backup 1`, then frames, each four bytes of length (big
endian) and that many bytes. The first frame is a JSON object with `shard`, `records` and `hash`,
that of the last record in hex; then one frame per record, as the log holds it, from position 1 on.
A length of 0 ends the frames and 32 bytes follow: the SHA-256 of everything before them. Nothing
comes after. Older versions wrote no `hash`, and an empty log has none.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

import msgspec

from ledger.log.records import RECORD_BYTES_MAX

MAGIC: Final = b"gpuledger-backup 1\n"

PARTIAL: Final = ".part"
"""The end of the name of an unfinished file."""

_LENGTH_BYTES: Final = 4
_END: Final = bytes(_LENGTH_BYTES)
_HASH_BYTES: Final = 32


class BadArchive(Exception):
    """The file is not an intact backup; the message names the file."""


class ArchiveHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The header of an archive: the shard's name, the number of records, and the hash of the last.

    `hash` is in hex, empty without records and in the archives of older versions.
    """

    shard: str
    records: int
    hash: str = ""


class ArchiveWriter:
    """Writes an archive beside its final name; `finish` gives it that name when it is complete."""

    def __init__(self, path: Path, header: ArchiveHeader) -> None:
        """Begin the file. Raises FileExistsError when there is one already, OSError."""
        if path.exists():
            raise FileExistsError(f"{path} exists already; name another file")
        if not path.parent.is_dir():
            raise FileNotFoundError(
                f"{path}: {path.parent} is not a directory; create it, or name another"
            )
        self._path = path
        self._scratch = path.with_name(path.name + PARTIAL)
        self._hash = hashlib.sha256()
        descriptor = os.open(self._scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._put(MAGIC)
        self.add(msgspec.json.encode(header))

    def add(self, payload: bytes) -> None:
        """Append a record."""
        self._put(len(payload).to_bytes(_LENGTH_BYTES, "big") + payload)

    def finish(self) -> None:
        """Seal the file, sync it to the disk and give it its name."""
        self._put(_END)
        self._file.write(self._hash.digest())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._scratch.rename(self._path)
        _sync_folder(self._path.parent)

    def __enter__(self) -> "ArchiveWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove an unfinished file."""
        self._file.close()
        self._scratch.unlink(missing_ok=True)

    def _put(self, data: bytes) -> None:
        self._hash.update(data)
        self._file.write(data)


def _sync_folder(folder: Path) -> None:
    """Sync a directory, so that a new name in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> Iterator[bytes]:
    """Yield the header's frame and then every record of an archive.

    The hash over the whole file is checked at the end, so read once to the end before using any
    record. Raises BadArchive, OSError.
    """
    with path.open("rb") as file:
        hasher = hashlib.sha256(MAGIC)
        if file.read(len(MAGIC)) != MAGIC:
            raise BadArchive(f"{path} is not a backup of gpuledger, or one of a newer version")
        while (frame := _frame(file, path, hasher)) is not None:
            yield frame
        if file.read(_HASH_BYTES + 1) != hasher.digest():
            raise BadArchive(f"{path} was changed or cut off: its hash is not the one it ends with")


def header_of(frame: bytes, path: Path) -> ArchiveHeader:
    """Read the first frame. Raises BadArchive."""
    try:
        return msgspec.json.decode(frame, type=ArchiveHeader)
    except msgspec.MsgspecError as error:
        raise BadArchive(f"{path}: the header is damaged: {error}") from error


def _frame(file: BinaryIO, path: Path, hasher: "hashlib._Hash") -> bytes | None:
    """Read one frame; None at the end. Raises BadArchive when the file is cut off."""
    prefix = file.read(_LENGTH_BYTES)
    hasher.update(prefix)
    size = int.from_bytes(prefix, "big")
    if len(prefix) == _LENGTH_BYTES and size == 0:
        return None
    payload = file.read(size) if size <= RECORD_BYTES_MAX else b""
    if len(prefix) < _LENGTH_BYTES or len(payload) < size:
        raise BadArchive(f"{path} is cut off or damaged at byte {file.tell()}")
    hasher.update(payload)
    return payload
