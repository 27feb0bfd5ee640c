"""Scratch folders: a command builds a file in one, and removes those of killed commands.

A folder is removed at the end of its block, also after a signal that the command can handle. The
next command with a scratch folder removes those of killed commands: each process locks its folder,
so a folder without a lock belongs to an ended process.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PREFIX: Final = "scratch-"


@contextmanager
def folder(beside: Path) -> Iterator[Path]:
    """Make a folder in a directory for the block, and remove stale ones there. Raises OSError."""
    remove_stale(beside)
    path, lock = _made(beside)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_stale(directory: Path) -> None:
    """Remove the scratch folders in a directory whose processes have ended."""
    for path in directory.glob(f"{_PREFIX}*"):
        try:
            lock = _locked(path)
        except OSError:  # in use, gone meanwhile, or not ours
            continue
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _made(beside: Path) -> tuple[Path, int]:
    """Return a new folder and the descriptor that locks it.

    One that another process took for a stale one, before it was locked, is made again.
    """
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=beside))
        try:
            lock = _locked(path)
        except (BlockingIOError, FileNotFoundError):
            continue
        if path.exists():
            return path, lock
        os.close(lock)


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
